"""Follows the regions that torch.compile makes with Inductor: CONVTRACE_COMPILED.

Inductor writes a Python file for each region, forward and backward, which calls C++ or Triton kernels and operations of
PyTorch. This part reads the file when Inductor loads it, and lets calls.py record the operands of its calls in steps
whose values are wanted. The kernels, their order and Inductor's cache are not touched, and nothing is compiled anew.
"""
import functools

from ..base import imports
from . import calls, graph, sources, twin, wrapper_source

_MAX_REGIONS = 4096
_ALL, _CALLS = "all", "calls"


class Regions:
    def __init__(self, observer, torch):
        self._observer, self._torch = observer, torch
        self._wanted = observer.port.setting("CONVTRACE_COMPILED")
        self._calls = calls.Calls(observer)
        self._graphs = {}  # by the number that Dynamo gives a compilation
        self._saved = {}  # by the same number: Sources.returned of the forward code
        self._twins = []
        self._observed = False  # whether the twins run
        self._replaced = []
        self._end_watch = lambda: None

    def install(self):
        if self._wanted in (_ALL, _CALLS):
            self._end_watch = imports.watch("torch._inductor.compile_fx", self._arrived)

    def remove(self):
        self._end_watch()
        self.switch(False)
        for owner, name, original, replacement in self._replaced:
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        self._replaced.clear()

    def forget(self):
        """In a child of a fork, whose engine numbers texts anew: regions that the parent compiled stay unobserved."""
        self.switch(False)
        for known in (self._graphs, self._saved, self._twins):
            known.clear()

    def switch(self, observed):
        """Whether calls of regions are observed from now on."""
        if observed != self._observed:
            self._observed = observed
            for one in self._twins:
                one.switch(observed)

    def _arrived(self, compile_fx):
        if not self._observer.active:
            return
        try:
            from torch._inductor.codecache import PyCodeCache  # compile_fx has imported it
            load = vars(PyCodeCache)["load_by_key_path"]
            self._replace(compile_fx, "compile_fx", self._compiles(compile_fx.compile_fx))
            self._replace(PyCodeCache, "load_by_key_path", classmethod(self._loads(load.__func__)))
        except Exception as error:  # a PyTorch whose Inductor is another one
            self._observer.failed("compiled regions", error)

    def _replace(self, owner, name, replacement):
        self._replaced.append((owner, name, vars(owner)[name], replacement))
        setattr(owner, name, replacement)

    def _compiles(self, original):
        @functools.wraps(original)
        def compile_fx(model_, *args, **kwargs):
            try:
                key = self._compilation()
                if self._observer.active and key not in self._graphs and len(self._graphs) < _MAX_REGIONS:
                    self._graphs[key] = graph.Graph(model_.graph)
            except Exception as error:
                self._observer.failed("compiled region", error)
            return original(model_, *args, **kwargs)

        return compile_fx

    def _loads(self, original):
        @functools.wraps(original)
        def load_by_key_path(cls, key, path, linemap=None, *args, **kwargs):
            module = original(cls, key, path, linemap, *args, **kwargs)
            try:
                if self._observer.active and hasattr(module, "call"):
                    self._loaded(vars(module), path, linemap or ())
            except Exception as error:
                self._observer.failed("compiled region", error)
            return module

        return load_by_key_path

    def _compilation(self):
        """The number of the compilation that this thread is in, which a backward pass that is compiled later has as well."""
        return str(self._torch._guards.CompileContext.current_compile_id())

    def _loaded(self, names, path, line_map):
        """@param names  the dictionary of the module that Inductor loaded"""
        with open(path, encoding="utf-8") as file:
            text = file.read()
        kind, key = wrapper_source.region_kind(text), self._compilation()
        if kind is None or key not in self._graphs or twin.BEFORE in names:
            return  # the file of a kernel, a graph that is not Dynamo's, or a region that is known
        is_backward = kind == "backward"
        names[twin.BEFORE], names[twin.AFTER] = self._calls.before, self._calls.after
        for function in wrapper_source.read(text, line_map):
            made_of = sources.Sources(function, self._graphs[key], self._saved.get(key, []) if is_backward else None)
            if not is_backward:
                self._saved[key] = made_of.returned
            observed = {id(call.statement): self._calls.add(call, made_of, self._graphs[key], is_backward, self._wanted == _ALL)
                        for call in function.calls if self._wanted == _ALL or call.kind == wrapper_source.EXTERN}
            target = _function(names, function.node.name)
            if target is not None:
                self._twins.append(twin.Twin(target, function.node, observed))
                self._twins[-1].switch(self._observed)


def _function(names, name):
    """The function of a generated module, or of the object in it whose method it is."""
    found = names.get(name) or getattr(names.get("Runner"), name, None)
    found = getattr(found, "__func__", found)
    return found if hasattr(found, "__code__") else None
