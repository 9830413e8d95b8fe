"""The way to the engine: its interface, where threads are, tensors and what the observer costs."""
import os

from . import contents

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # all of our Python; on PYTHONPATH


def own(module, name):
    """An attribute of a module, without a `__getattribute__` of the program."""
    try:
        return object.__getattribute__(module, name)
    except AttributeError:  # a module of TorchScript asks what is in C++
        return getattr(module, name)


def mode_of(module, otherwise):
    """Whether a module is in training mode. `otherwise`: where it does not say."""
    known = own(module, "__dict__").get("training")
    if known is not None:
        return known
    found = contents.found_in(type(module), "training")
    of_torch = type(found) is property and (getattr(found.fget, "__module__", None) or "").startswith("torch.")
    if found is not None and not of_torch:  # a property of the program; that of a compiled module asks the original
        return otherwise
    return getattr(module, "training", otherwise)
