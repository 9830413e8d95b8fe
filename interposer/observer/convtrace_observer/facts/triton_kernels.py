"""Names and types of Triton kernels' arguments, as facts of the trace: `triton.<kernel>` says
"x_ptr *fp32, n i32". Their launches are seen like any other kernel's, where arguments are words.

Triton calls a hook when it has compiled a kernel for new types: triton.knobs.runtime since 3.4,
triton.runtime.jit.JITFunction before. It has one place for it, so what is there is called, too.
Triton is never imported here.
"""
import functools
import sys

_MAX_KERNELS, _MAX_VERSIONS = 1000, 8


class TritonKernels:
    def __init__(self, observer):
        self._observer = observer
        self._holder = self._name = self._hook = None
        self._versions = {}  # kernel -> its signatures

    def look(self):
        """Adds the hook once the program has Triton. Called at each step."""
        if self._holder is not None or "triton" not in sys.modules:
            return
        for module, path, name in (
                ("triton.knobs", ("runtime",), "jit_post_compile_hook"),
                ("triton.runtime.jit", ("JITFunction",), "compiled_hook")):
            holder = sys.modules.get(module)
            for part in path:
                holder = getattr(holder, part, None)
            if hasattr(holder, name):
                self._holder, self._name = holder, name
                self._hook = self._chained(getattr(holder, name))
                setattr(holder, name, self._hook)
                return

    def remove(self):
        """Removes the hook. If another hook was put around it, that one stays and this one only forwards."""
        if self._holder is not None and getattr(self._holder, self._name) is self._hook:
            setattr(self._holder, self._name, self._hook.keywords["before"])

    def _chained(self, before):
        return functools.partial(self._compiled, before=before)

    def _compiled(self, *args, before, **kwargs):
        try:
            if self._observer.active:
                self._tell(kwargs["fn"], kwargs["compile"]["signature"])
        except Exception as error:
            self._observer.failed("triton", error)
        return before(*args, **kwargs) if before is not None else None

    def _tell(self, function, signature):
        name = "%s.%s" % (function.module, function.name)
        text = ", ".join("%s %s" % argument for argument in signature.items())
        if len(self._versions) >= _MAX_KERNELS and name not in self._versions:
            return
        versions = self._versions.setdefault(name, [])
        if text in versions or len(versions) == _MAX_VERSIONS:
            return
        versions.append(text)
        thread = self._observer.threads.state
        if self._observer.begin(thread):
            thread.batch.fact("triton." + name, " | ".join(versions))
            self._observer.submit(thread)
