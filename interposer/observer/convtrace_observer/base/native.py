"""The functions of the observer that run for each module call, gradient and parameter, in C++
(interposer/core/python/hot_path.h). The observer's Python versions are the reference, and run where these cannot: on a
Python other than CPython, without a GIL, or with a torch that lacks something they read.
"""
import collections
import sys

from . import frames, storage_numbers

_KNOWN_FRAMES = 3  # Engine.make_functions, choose, Observer.__init__: functions of Python that call one another
NAMES = ("enter", "leave", "gradient", "backward", "parameters", "memory", "number", "sweep", "operands", "ask", "forget", "end", "surrounded")


class Functions:
    """One function for each of NAMES, in C++ or Python."""

    __slots__ = NAMES

    def __init__(self, functions):
        for name in NAMES:
            setattr(self, name, functions[name])


def choose(port, torch, reader, reference, needed):
    """@param reference  the Python functions, by name
    @param needed  the observer's objects and functions that the C++ functions use, by name
    """
    config = _config(torch, reader) if _can_load() else None
    if config is not None:
        try:
            functions = port.make_functions({**config, **reference, **needed})
            if port.setting("CONVTRACE_STACKS") == "all":  # recorded only by the batches in Python (scopes.TellingBatch)
                functions = {**reference, "end": functions["end"], "surrounded": functions["surrounded"]}
            return Functions(functions)
        except Exception:
            pass  # an engine without this part
    return Functions(reference)


def _can_load():
    """@return whether objects have the layout that the C++ functions expect: it differs without a GIL and with Py_TRACE_REFS."""
    return (sys.implementation.name == "cpython" and "t" not in sys.abiflags
            and not hasattr(sys, "getobjects"))


def _config(torch, reader):
    modes = getattr(torch._C, "_is_torch_function_mode_enabled", None)
    address = getattr(torch._C, "_data_address", None)
    if modes is None or address is None or not hasattr(torch.Tensor, "untyped_storage"):
        return None
    return {
        "tensor": torch.Tensor, "parameter": torch.nn.Parameter, "strided": torch.strided,
        "dtypes": reader.dtypes, "is_wrapped": reader.is_wrapped, "raw_stream": reader.raw_stream,
        "exchange": getattr(torch.Tensor, "__dlpack_c_exchange_api__", None), "is_cow": getattr(torch._C, "_is_cow_tensor", None),
        "data_address": address, "has_modes": modes, "unobserved": reader.unobserved,
        "is_leaf": reader.is_leaf, "ordered_dict": collections.OrderedDict, "storage_ids": storage_numbers.count,
        "frames": _known_frames, "hide": frames.hide_all,
    }


def _known_frames():
    """@return the innermost frames of this thread, without this one (interposer/abi/known_frame.h)."""
    known, frame = [], sys._getframe(1)
    while frame is not None and len(known) < _KNOWN_FRAMES:
        code = frame.f_code
        lines = getattr(code, "co_linetable", b"")
        known.append((id(code), frame.f_lasti, id(code.co_filename), id(code.co_name), id(lines), code.co_firstlineno,
                      frame.f_lineno, code.co_filename, code.co_name))
        frame = frame.f_back
    return known
