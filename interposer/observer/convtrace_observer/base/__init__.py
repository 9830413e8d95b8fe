"""The base of the observer: the engine's interface, the state of threads, reading of tensors, and the observer's own cost."""
import os
import types

from . import contents

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # all of our Python; on PYTHONPATH


def own(module, name):
    """@return an attribute of a module, without running a `__getattribute__` of the program."""
    try:
        return object.__getattribute__(module, name)
    except AttributeError:  # a module of TorchScript looks its attributes up in C++
        asked = contents.found_in(type(module), "__getattr__")
        if not _is_torchs(asked):
            raise
        return asked(module, name)


def _is_torchs(function):
    return type(function) is types.FunctionType and str(dict.get(function.__globals__, "__name__")).startswith("torch.")


def held(module, name):
    """@return [(name, value)] of a module's dictionary of parameters, buffers or modules, without running code of the program;
    empty for a module that was not set up."""
    try:
        found = own(module, name)
    except AttributeError:
        return ()
    if issubclass(type(found), dict):
        return tuple(dict.items(found))
    return tuple(found.items()) if contents.module_of(type(found)).startswith("torch.") else ()  # TorchScript's


def mode_of(module, otherwise):
    """@return whether a module is in training mode; `otherwise` if only code of the program could tell."""
    known = dict.get(contents.attributes(module), "training")
    if known is not None:
        return known
    found = contents.found_in(type(module), "training")
    asked = contents.found_in(type(module), "__getattr__") if found is None else found.fget if type(found) is property else None
    if not _is_torchs(asked):
        return otherwise  # the program's; that of torch's compiled module asks the original, that of TorchScript is in C++
    return getattr(module, "training", otherwise)


def is_power(count):
    """@return whether a number is a power of two."""
    return count > 0 and count & (count - 1) == 0
