"""Reads the contents of the program's objects from where Python itself keeps them. No iterator, property, `__getattribute__`
or metaclass of the program runs, since it may draw a random number, read a file or never end."""
import functools
import types

bases_of = type.__dict__["__bases__"].__get__
name_of = type.__dict__["__name__"].__get__
_mro = type.__dict__["__mro__"].__get__
_module = type.__dict__["__module__"].__get__
_qualified_name = type.__dict__["__qualname__"].__get__
_of_class = type.__dict__["__dict__"].__get__
# Python's own getters of an object's dictionary: for classes written in Python, and for some built-in ones. Any other getter
# is foreign code: wrapt's asks the object behind a proxy, and may create it.
_OF_PYTHON = vars(type("", (), {}))["__dict__"].__doc__
_OF_KNOWN = tuple(vars(kind)["__dict__"] for kind in (types.ModuleType, types.SimpleNamespace, type(functools.lru_cache(len))))
_NOTHING = object()


def mro_of(kind):
    return _mro(kind)


def module_of(kind):
    """@return the name of the module that a class was made in; "" if it has none or it is no text."""
    try:
        found = _module(kind)
    except AttributeError:  # made by type() in code that Python has no module of
        return ""
    return found if type(found) is str else ""


def path_of(kind):
    """@return a class's module and qualified name, joined by a dot."""
    return module_of(kind) + "." + _qualified_name(kind)


def members_of(kind):
    """@return [(name, member)] of a class itself, without its bases."""
    return [(name, member) for name, member in _of_class(kind).items() if type(name) is str]


def found_in(kind, name):
    """@return the attribute that a class or the first of its bases has under a name, without calling a descriptor; None if none
    has it."""
    for base in _mro(kind):
        found = _of_class(base).get(name)
        if found is not None:
            return found
    return None


def attributes(thing):
    """@return an object's own dictionary; an empty one if it has none, or its class has a getter of its own for it."""
    held = found_in(type(thing), "__dict__")
    if not (type(held) is types.GetSetDescriptorType and held.__doc__ == _OF_PYTHON or any(held is one for one in _OF_KNOWN)):
        return {}
    try:
        return held.__get__(thing)
    except AttributeError:  # of a class that has several bases, one of which is written in C
        return {}


def attribute(thing, name):
    """@return an attribute from an object's dictionary or slots; None if it is in neither."""
    found = dict.get(attributes(thing), name, _NOTHING)
    return found if found is not _NOTHING else _in_slot(thing, name)


def several(thing, names):
    """@return attribute() of each name, for one search of the dictionary"""
    held = attributes(thing)
    return [_in_slot(thing, name) if (found := dict.get(held, name, _NOTHING)) is _NOTHING else found for name in names]


def _in_slot(thing, name):
    slot = found_in(type(thing), name)
    try:
        return slot.__get__(thing) if type(slot) is types.MemberDescriptorType else None
    except (AttributeError, TypeError):  # it is empty, or another class's
        return None


def slots(thing):
    """@return [(name, value)] of an object's slots that are filled."""
    found = [(name, _in_slot(thing, name)) for kind in _mro(type(thing)) for name, member in members_of(kind)
             if type(member) is types.MemberDescriptorType]
    return [one for one in found if one[1] is not None]


def elements(thing):
    """@return the elements of a list or tuple, or the values of a dict; nothing for other objects."""
    kind = type(thing)
    if issubclass(kind, list):
        return list.__iter__(thing)
    if issubclass(kind, tuple):
        return tuple.__iter__(thing)
    return tuple(dict.values(thing)) if issubclass(kind, dict) else ()


def length(thing):
    """@return the number of elements of a list, tuple or dict; 0 for other objects."""
    kind = type(thing)
    return next((base.__len__(thing) for base in (tuple, list, dict) if issubclass(kind, base)), 0)


def items(thing):
    """@return [(key, value)] of a dict; nothing for other objects."""
    return tuple(dict.items(thing)) if issubclass(type(thing), dict) else ()


def by_identity(thing):
    """@return the values of a dict by the ids of their keys, whose `__hash__` may be the program's."""
    return {id(key): value for key, value in items(thing)}


def is_one_of(kind, kinds):
    """@return whether a class is in a set of plain classes. A class with a metaclass is never: it may define its comparison."""
    return type(kind) is type and kind in kinds


def value_at(thing, key):
    """@return the value that a dict has at a text; None for other objects."""
    return dict.get(thing, key) if issubclass(type(thing), dict) else None
