"""Reports names and types of Triton kernels' parameters to the engine, which names the values that a kernel writes by its
arguments: CONVTRACE_COMPILED=all, --all-kernels, rules. For a program's own kernels they are also facts:
`triton.<module>.<kernel>` is "x_ptr *fp32, n i32".

A kernel is described when its binary is loaded, which happens once for each specialization, from a cold and from a warm
cache, and gives the handle that launches will use. Triton's CompiledKernel loads its own binary; since 2.8 PyTorch's static
launcher loads those of Inductor. Triton is never imported here.
"""
import functools

from ..base import imports, replaced
from . import kernel_facts

_MAX_TEXT = 200
_INDUCTOR = "torch._inductor."
_UNKNOWN = 0
# Types of Triton to values of format/model/dtype.h; _UNKNOWN: no counterpart.
_DTYPES = {
    "fp64": 1, "fp32": 2, "f32": 2, "fp16": 3, "bf16": 4, "fp8e4nv": 5, "fp8e5": 6, "i8": 7, "u8": 8, "i16": 9, "u16": 10,
    "i32": 11, "u32": 12, "i64": 13, "u64": 14, "i1": 15, "u1": 15, "fp8e4b8": _UNKNOWN, "fp8e4b15": _UNKNOWN,
    "fp8e5b16": _UNKNOWN}


def parameters(names, types, constants):
    """@param names  those of a kernel's arguments
    @param types  by name: "*fp32", "i32", a tuple of such
    @param constants  positions or names of the arguments that are compiled in; Triton gives positions as paths since 3.3
    @return [(name, whether a pointer, dtype)] of the compiled kernel's parameters; None if they are not known, as for tensor
    descriptors, whose compiled form differs between devices"""
    constant = {one[0] if isinstance(one, tuple) and len(one) == 1 else one for one in constants}
    found = []
    for position, name in enumerate(names):
        if name in types and position not in constant and name not in constant:
            found.extend(_parts(name, types[name]))
    return None if None in found else found


def _parts(name, kind):
    if isinstance(kind, tuple):
        for position, one in enumerate(kind):
            yield from _parts("%s.%d" % (name, position), one)
    elif kind.startswith("*"):
        yield name, True, _DTYPES.get(kind[1:].removeprefix("k"), _UNKNOWN)
    elif kind in _DTYPES:
        yield name, False, _DTYPES[kind]
    elif kind != "constexpr":
        yield None


class TritonKernels:
    def __init__(self, observer):
        self._observer = observer
        self._facts = kernel_facts.KernelFacts(observer, "triton.", list)
        self._replaced = replaced.Replaced()
        self._watches = ()

    def install(self):
        self._watches = (imports.watch("triton.compiler.compiler", self._triton_arrived),
                         imports.watch("torch._inductor.runtime.triton_heuristics", self._inductor_arrived))

    def remove(self):
        for end in self._watches:
            end()
        self._replaced.put_back()

    def _triton_arrived(self, module):
        self._replaced.wrap(getattr(module, "CompiledKernel", None), "_init_handles", self._loads)

    def _inductor_arrived(self, module):
        self._replaced.wrap(getattr(module, "StaticTritonCompileResult", None) or
                            getattr(module, "StaticCudaCompileResult", None), "make_launcher", self._loads_statically)

    def _loads(self, original):
        @functools.wraps(original)
        def _init_handles(kernel):
            if kernel.module is not None:  # before 3.3 each launch comes here
                return original(kernel)
            result = original(kernel)
            self._contained(self._loaded, kernel)
            return result

        return _init_handles

    def _loads_statically(self, original):
        @functools.wraps(original)
        def make_launcher(result):
            launcher = original(result)
            self._contained(self._loaded_statically, result)
            return launcher

        return make_launcher

    def _contained(self, tell, loaded):
        try:
            if self._observer.active:
                tell(loaded)
        except Exception as error:
            self._observer.failed("triton", error)

    def _loaded(self, kernel):
        source = kernel.src
        function = getattr(source, "fn", None)
        if function is None:
            return  # compiled from IR, which has no names
        self._describe(kernel.function, kernel.name, parameters(function.arg_names, source.signature, source.constants))
        if not function.module.startswith(_INDUCTOR):
            self._facts.tell("%s.%s" % (function.module, function.__name__),
                             ", ".join("%s %s" % argument for argument in source.signature.items()))

    def _loaded_statically(self, result):
        kernel = result.kernel
        self._describe(kernel.function, kernel.name,
                       parameters(kernel.arg_names, result.compile_meta["signature"], kernel.full_constexprs))

    def _describe(self, function, name, found):
        thread = self._observer.threads.state
        if isinstance(function, int) and found is not None and self._observer.begin(thread):
            thread.batch.kernel(function, name[:_MAX_TEXT], [("arg:" + one[:_MAX_TEXT], *kind) for one, *kind in found])
            self._observer.submit(thread)
