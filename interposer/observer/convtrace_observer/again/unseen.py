"""Runs operators of torch for the observer itself, so that no mode, transform or profiler of the program sees them."""
import contextlib


class Unseen:
    def __init__(self, torch):
        self._torch = torch
        self._level = getattr(getattr(torch._C, "_functorch", None), "maybe_current_level", lambda: 0)
        self._is_profiled = getattr(torch._C._autograd, "_profiler_enabled", lambda: True)
        self._modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
        self._without_modes = getattr(torch.utils._python_dispatch, "_disable_current_modes", None)

    def is_possible(self):
        """@return whether operators that this thread calls in `region()` are seen by nobody; False where that is not known"""
        return (self._without_modes is not None and self._level() is None
                and not self._torch.is_inference_mode_enabled() and not self._is_profiled())

    def region(self):
        """@return a context without dispatch modes. torch's own imports modules, which fails where no descriptor is left:
        it is entered only where a mode is on."""
        return self._without_modes() if self._modes() else contextlib.nullcontext()
