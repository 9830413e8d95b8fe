"""What objects of the program hold, read where Python itself keeps it: no iterator, property, `__getattribute__` or metaclass
of the program runs, since it may draw a number, read a file or have no end."""
import types

_mro = type.__dict__["__mro__"].__get__
_of_class = type.__dict__["__dict__"].__get__
_NOTHING = object()


def found_in(kind, name):
    """@return what a class or the first of its bases has under a name, as it stands there; None where none has it."""
    for base in _mro(kind):
        found = _of_class(base).get(name)
        if found is not None:
            return found
    return None


def attributes(thing):
    """@return an object's own dictionary; an empty one where it has none, or its class gives another one out."""
    held = found_in(type(thing), "__dict__")
    return held.__get__(thing) if type(held) is types.GetSetDescriptorType else {}


def attribute(thing, name):
    """@return an attribute in an object's dictionary or slots; None where it is in neither."""
    found = dict.get(attributes(thing), name, _NOTHING)
    if found is not _NOTHING:
        return found
    slot = found_in(type(thing), name)
    try:
        return slot.__get__(thing) if type(slot) is types.MemberDescriptorType else None
    except (AttributeError, TypeError):  # it is empty, or another class's
        return None


def elements(thing):
    """@return those of a list or tuple, or the values of a dict; nothing for other objects."""
    kind = type(thing)
    if issubclass(kind, list):
        return list.__iter__(thing)
    if issubclass(kind, tuple):
        return tuple.__iter__(thing)
    return tuple(dict.values(thing)) if issubclass(kind, dict) else ()


def items(thing):
    """@return (key, value) of a dict; nothing for other objects."""
    return tuple(dict.items(thing)) if issubclass(type(thing), dict) else ()


def by_identity(thing):
    """@return the values of a dict by the ids of their keys, whose `__hash__` may be the program's."""
    return {id(key): value for key, value in items(thing)}


def value_at(thing, key):
    """@return what a dict has at a text; None for other objects."""
    return dict.get(thing, key) if issubclass(type(thing), dict) else None
