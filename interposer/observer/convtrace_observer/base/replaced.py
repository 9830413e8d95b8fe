"""Functions of the program's libraries that the observer replaces while it traces."""
import functools
import sys
import types

from . import frames

_NOTHING = object()  # in the place of a replaced function that its owner did not have


def _nothing_behind(state, result, raised):
    """Does nothing, after a call of which only the beginning matters."""


class Replaced:
    """The functions of classes and modules that were replaced, with their originals."""

    def __init__(self):
        self._all = []  # (owner, name, original, replacement)

    def wrap(self, owner, name, make):
        """Replaces a function by `make(original)`. An owner without such a function is left unchanged."""
        original = vars(owner).get(name) if owner is not None else None
        if _is_of_class(original):
            self.set(owner, name, classmethod(make(getattr(original, "__func__", original))))
        elif callable(original):
            self.set(owner, name, make(original))

    def surround(self, observer, owner, name, before, after=_nothing_behind, original=None):
        """Makes each call begin with `before` and end with `after` (interposer/core/python/surrounded.cpp), without a Python
        frame where that is possible. An owner without such a function is left unchanged.
        @param original  the base class's function, for a class that inherits it"""
        if original is None:
            original = vars(owner).get(name) if owner is not None else None
        of_class = _is_of_class(original)
        function = getattr(original, "__func__", original) if of_class else original
        if not callable(function):
            return
        self.set(owner, name, surrounded(observer, function, before, after, owner if isinstance(owner, type) else None, of_class))

    def set(self, owner, name, replacement):
        original = vars(owner).get(name, _NOTHING)
        self._all.append((owner, name, original, replacement))
        setattr(owner, name, replacement)
        _script_alike(original, replacement)

    def put_back(self):
        """Restores the originals, except where other code has replaced our replacement since."""
        for owner, name, original, replacement in self._all:
            if vars(owner).get(name) is not replacement:
                continue
            if original is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._all.clear()


def surrounded(observer, original, before, after=_nothing_behind, owner=None, of_class=False):
    """@return a function that calls the original as Replaced.surround() does. `owner`: the class whose method it is, or None."""
    made = observer.hot.surrounded(original, before, after, owner, of_class)
    if made is None:
        made = framed(observer, original, before, after)
        made = classmethod(made) if of_class else made
    return made


def framed(observer, original, before, after=_nothing_behind):
    """The same as interposer/core/python/surrounded.cpp, with a Python frame: for where that is not available, or a Python
    function must stay one."""
    is_folded = observer.is_folded

    @frames.unseen
    @functools.wraps(original)
    def call(*args, **kwargs):
        if is_folded():
            return original(*args, **kwargs)
        try:
            state = before(args, kwargs or None)
            if state is None:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                after(state, None, True)
                raise
            after(state, result, False)
            return result
        except BaseException as error:
            frames.hide(error)
            raise

    return call


def _is_of_class(function):
    return isinstance(function, (classmethod, types.ClassMethodDescriptorType))  # the second: written in C


def _script_alike(original, replacement):
    """Registers the replacement for the original's operator in TorchScript, if it has one, until the process ends."""
    builtins = sys.modules.get("torch.jit._builtins")
    known = getattr(builtins, "_builtin_ops", ())
    operator = next((operator for function, operator in known if function is original), None)
    if operator is not None:
        known.append((replacement, operator))
        if builtins._builtin_table is not None:  # it is made of the list when it is first needed
            builtins._builtin_table[id(replacement)] = operator
