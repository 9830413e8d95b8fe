"""Functions of the program's libraries that the observer replaces while it traces."""
import sys
import types


class Replaced:
    """Functions of classes and modules that were replaced."""

    def __init__(self):
        self._all = []  # (owner, name, original, replacement)

    def wrap(self, owner, name, make):
        """`make` gives the replacement of the original. An owner without such a function is left as it is."""
        original = vars(owner).get(name) if owner is not None else None
        if isinstance(original, (classmethod, types.ClassMethodDescriptorType)):  # the second: written in C
            self.set(owner, name, classmethod(make(getattr(original, "__func__", original))))
        elif callable(original):
            self.set(owner, name, make(original))

    def set(self, owner, name, replacement):
        original = vars(owner)[name]
        self._all.append((owner, name, original, replacement))
        setattr(owner, name, replacement)
        _script_alike(original, replacement)

    def put_back(self):
        """What somebody else has replaced since then stays."""
        for owner, name, original, replacement in self._all:
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        self._all.clear()


def _script_alike(original, replacement):
    """Where the original stands for an operator in TorchScript, so does the replacement, for as long as the process runs."""
    builtins = sys.modules.get("torch.jit._builtins")
    known = getattr(builtins, "_builtin_ops", ())
    operator = next((operator for function, operator in known if function is original), None)
    if operator is not None:
        known.append((replacement, operator))
        if builtins._builtin_table is not None:  # it is made of the list when it is first needed
            builtins._builtin_table[id(replacement)] = operator
