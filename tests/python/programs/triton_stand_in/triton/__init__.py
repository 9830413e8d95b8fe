"""A stand-in for Triton 3.6.0, as far as the observer and triton_double.py see it: types of arguments become the same
signature, kernels are loaded once for each, and a tuner tries its configurations. Nothing is compiled."""
from types import SimpleNamespace

from . import runtime
from .compiler.compiler import CompiledKernel
from .runtime.autotuner import Autotuner, Config  # noqa: F401 - Config is part of the interface


class JITFunction:
    def __init__(self, fn):
        self.fn, self.module, self.__name__ = fn, fn.__module__, fn.__name__
        self.arg_names = list(fn.__code__.co_varnames[:fn.__code__.co_argcount])
        self._kernels = {}

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self, *args, grid, **kwargs):
        arguments = dict(zip(self.arg_names, args), **kwargs)
        types = [_type(arguments[name]) if name not in kwargs else "constexpr" for name in self.arg_names]
        key = (*types, *kwargs.items())
        if key not in self._kernels:
            constants = {(i,): arguments[name] for i, name in enumerate(self.arg_names) if types[i] == "constexpr"}
            source = SimpleNamespace(fn=self, signature=dict(zip(self.arg_names, types)), constants=constants)
            self._kernels[key] = CompiledKernel(source, self.__name__)
        kernel = self._kernels[key]
        kernel.run(*grid, 1, 1, runtime.driver.active.get_current_stream(0), kernel.function, None, None, None, None,
                   *[arguments[name] for name in self.arg_names])


def _type(argument):
    if isinstance(argument, float):
        return "fp32"
    if isinstance(argument, int):
        return "constexpr" if argument == 1 else "i32"
    return {"torch.float16": "*fp16", "torch.float32": "*fp32", "torch.int32": "*i32"}[str(argument.dtype)]


jit = JITFunction


def autotune(configs, key, do_bench):
    return lambda fn: Autotuner(fn, configs, key, do_bench)
