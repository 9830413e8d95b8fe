"""Functions of the program's libraries that the observer replaces while it traces."""
import functools
import sys
import types

from . import frames

_NOTHING = object()  # in the place of a replaced function that its owner did not have


def _nothing_behind(state, result, raised):
    """After a call of which only the begin is of interest."""


class Replaced:
    """Functions of classes and modules that were replaced."""

    def __init__(self):
        self._all = []  # (owner, name, original, replacement)

    def wrap(self, owner, name, make):
        """`make` gives the replacement of the original. An owner without such a function is left as it is."""
        original = vars(owner).get(name) if owner is not None else None
        if _is_of_class(original):
            self.set(owner, name, classmethod(make(getattr(original, "__func__", original))))
        elif callable(original):
            self.set(owner, name, make(original))

    def surround(self, observer, owner, name, before, after=_nothing_behind, original=None):
        """Has each call begin with `before` and end with `after` (interposer/core/python/surrounded.cpp), without a frame of
        Python where that can be. An owner without such a function is left as it is.
        @param original  of a class that has the function from this one, which a base of it has"""
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
        """What somebody else has replaced since then stays."""
        for owner, name, original, replacement in self._all:
            if vars(owner).get(name) is not replacement:
                continue
            if original is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._all.clear()


def surrounded(observer, original, before, after=_nothing_behind, owner=None, of_class=False):
    """@return a function that calls the original as Replaced.surround() says. `owner`: the class whose method it is, or None."""
    made = observer.hot.surrounded(original, before, after, owner, of_class)
    if made is None:
        made = framed(observer, original, before, after)
        made = classmethod(made) if of_class else made
    return made


def framed(observer, original, before, after=_nothing_behind):
    """As interposer/core/python/surrounded.cpp, where that cannot be, or a function of Python must stay one: with a frame."""
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
    """Where the original stands for an operator in TorchScript, so does the replacement, for as long as the process runs."""
    builtins = sys.modules.get("torch.jit._builtins")
    known = getattr(builtins, "_builtin_ops", ())
    operator = next((operator for function, operator in known if function is original), None)
    if operator is not None:
        known.append((replacement, operator))
        if builtins._builtin_table is not None:  # it is made of the list when it is first needed
            builtins._builtin_table[id(replacement)] = operator
