"""Follows the regions that torch.compile makes with Inductor: CONVTRACE_COMPILED.

Inductor writes a Python file for each region, forward and backward, which calls C++ or Triton kernels and operations of
PyTorch. This module reads the file when Inductor loads it, and lets calls.py record the operands of its calls in steps
whose values are wanted. The kernels, their order and Inductor's cache stay unchanged, and nothing is compiled again.
"""
import functools
import threading
import weakref

from ..base import frames, imports, replaced
from . import calls, graph, roots, sources, twin, wrapper_source

_MAX_REGIONS = 4096
_ALL, _CALLS = "all", "calls"


class _Compilation(threading.local):
    """The outermost compile_fx on this thread. `graph`: its graph, or None. `roots`: references to the roots that it calls."""

    graph, roots = None, ()


class Regions:
    def __init__(self, observer, torch, of_torch):
        """@param of_torch  the namespaces of torch.ops that have no custom ops"""
        self._observer, self._torch, self._of_torch = observer, torch, of_torch
        self._wanted = observer.port.setting("CONVTRACE_COMPILED")
        self._calls = calls.Calls(observer)
        self._current = _Compilation()
        self._known = {}  # (compilation, number of the graph in it) -> (graph, calls.Region, Sources.returned of the forward code)
        self._twins = []
        self._callers = {}  # id of a root -> reference to it, and Dynamo's number of the function that calls it
        self._observed = False  # whether the twins run
        self._failures = 0
        self._replaced = replaced.Replaced()
        self._end_watch = lambda: None

    def install(self):
        if self._wanted in (_ALL, _CALLS):
            self._end_watch = imports.watch("torch._inductor.compile_fx", self._arrived)

    def remove(self):
        self._end_watch()
        self._put_back()
        self._replaced.put_back()

    def forget(self):
        """Resets the state in a forked child, whose engine numbers texts anew: regions that the parent compiled stay
        unobserved."""
        self._put_back()
        self._observed = self._observer.capture
        self._calls.forget()
        for known in (self._known, self._callers, self._twins):
            known.clear()

    def _put_back(self):
        for one in self._twins:
            one.put_back()

    def switch(self, observed):
        """Sets whether calls of regions are observed from now on."""
        if observed != self._observed:
            self._observed = observed
            self._twins = [one for one in self._twins if one.switch(observed)]

    def _failed(self, error):
        """Reports the first region that could not be read. Such regions stay unobserved."""
        self._failures += 1
        if self._failures == 1:
            self._observer.failed("compiled region", error)

    def _arrived(self, compile_fx):
        if not self._observer.active:
            return
        try:
            from torch._inductor.codecache import PyCodeCache  # compile_fx has imported it
            load = vars(PyCodeCache)["load_by_key_path"]
            self._replaced.set(compile_fx, "compile_fx", self._compiles(compile_fx.compile_fx))
            self._replaced.set(PyCodeCache, "load_by_key_path", classmethod(self._loads(load.__func__)))
        except Exception as error:  # a PyTorch with a different Inductor
            self._failed(error)

    def _compiles(self, original):
        @functools.wraps(original)
        def compile_fx(model_, *args, **kwargs):
            if not self._observer.active or self._current.graph is not None:
                return original(model_, *args, **kwargs)  # it calls itself
            try:
                self._current.graph = graph.Graph(model_.graph)
                self._current.roots = self._call_roots(self._current.graph)
            except Exception as error:
                self._failed(error)
            try:
                return original(model_, *args, **kwargs)
            except BaseException as error:
                frames.hide(error)
                raise
            finally:
                self._current.graph, self._current.roots = None, ()

        return compile_fx

    def _call_roots(self, known):
        """Reports the modules that a compiled function calls as called roots, before its first run: their calls inside
        compiled code are not observed.
        @return references to them, for later runs; empty inside the call of a module, and for the graph of the rest of a
        function whose first graph calls the first of them"""
        observer, thread = self._observer, self._observer.threads.state
        if thread.entry is not None or observer.modules.in_backward():
            return ()
        modules = roots.find(known.roots, self._torch.nn.Module)
        for module in modules:
            observer.modules.find(thread, module, observer.names.entry(module), (), {})
        if not modules:
            return ()
        function = (self._compilation() or "").split("/")[0]
        at, caller = self._callers.get(id(modules[0]), (lambda: None, None))
        if not known.is_resumed or at() is not modules[0]:
            self._callers[id(modules[0])] = weakref.ref(modules[0]), function
        elif caller != function:
            return ()
        return tuple(map(weakref.ref, modules))

    def _loads(self, original):
        @functools.wraps(original)
        def load_by_key_path(cls, key, path, linemap=None, *args, **kwargs):
            module = original(cls, key, path, linemap, *args, **kwargs)
            try:
                if self._observer.active and hasattr(module, "call") and not self._is_candidate():
                    self._loaded(vars(module), path, linemap or ())
            except Exception as error:
                self._failed(error)
            return module

        return load_by_key_path

    def _compilation(self):
        """@return the number of Dynamo's compilation on this thread, which a backward pass compiled later has as well; None
        outside of one."""
        number = self._torch._guards.CompileContext.current_compile_id()
        return None if number is None else str(number)

    def _is_candidate(self):
        """@return whether Inductor is loading one of several versions of a call in order to compare their times."""
        from torch._inductor.virtualized import V
        try:
            return str(getattr(V.graph, "name", "")).startswith("benchmark_")
        except Exception:  # no graph is being lowered
            return False

    def _loaded(self, names, path, line_map):
        """@param names  the dictionary of the module that Inductor loaded"""
        with open(path, encoding="utf-8") as file:
            text = file.read()
        kind = wrapper_source.region_kind(text)
        if kind is None or twin.BEFORE in names:
            return  # the file of a kernel, or a known region
        number, kind = kind
        key, is_backward = (self._compilation(), number), kind == "backward"
        if is_backward:
            known, region, saved = self._known.get(key, (None, None, None))
        else:
            known, saved = self._current.graph, None
            entry = self._observer.threads.state.entry
            region = calls.Region(key[0] or "", entry.place.name if entry is not None else None, self._current.roots, kind == "forward")
        if known is None:
            return  # the graph is not Dynamo's
        names.update({twin.BEFORE: self._calls.before, twin.AFTER: self._calls.after, twin.BEGINS: self._calls.begins,
                      twin.ENTER: self._calls.enter, twin.LEAVE: self._calls.leave})
        functions = wrapper_source.read(text, line_map, lambda namespace: namespace not in self._of_torch)
        of_modules = {address: entry.place.name for address, entry in self._observer.names.by_address().items()}
        # Parts that CUDA graphs are made of are functions of their own.
        first = "partition_0" if any(one.node.name == "partition_0" for one in functions) else "call"
        for function in functions:
            target = _function(names, function.node.name)
            if target is None:
                continue
            made_of = sources.Sources(function, known, saved)
            if function.node.name == "call" and not is_backward and key[0] is not None and len(self._known) < _MAX_REGIONS:
                self._known[key] = known, region, made_of.returned
            calls_of = [call for call in function.calls if self._wanted == _ALL or call.kind != wrapper_source.KERNEL]
            is_first = function.node.name == first
            observed = {}
            for call in calls_of:
                observed[id(call.statement)] = self._calls.add(region, call, made_of, known, of_modules, is_backward, is_first, self._wanted == _ALL)
                is_first = False
            if len(self._twins) < _MAX_REGIONS:
                begins = not is_backward and region.roots and function.node.name == "call"
                self._twins.append(twin.Twin(target, function.node, observed, self._calls.add_run(region) if begins else None))
                self._twins[-1].switch(self._observed)


def _function(names, name):
    """@return a function of a generated module, or of its `Runner` object; None if there is none."""
    found = names.get(name) or getattr(names.get("Runner"), name, None)
    found = getattr(found, "__func__", found)
    return found if hasattr(found, "__code__") else None
