"""What objects of the program hold, read where Python itself keeps it: no iterator, property, `__getattribute__` or metaclass
of the program runs, since it may draw a number, read a file or have no end."""
import functools
import types

bases_of = type.__dict__["__bases__"].__get__
name_of = type.__dict__["__name__"].__get__
_mro = type.__dict__["__mro__"].__get__
_module = type.__dict__["__module__"].__get__
_qualified_name = type.__dict__["__qualname__"].__get__
_of_class = type.__dict__["__dict__"].__get__
# How Python gives out the dictionary of an object: of one whose class is written in Python, and of some of its own. The
# others' functions are foreign: wrapt's asks the object behind a proxy, and makes it if need be.
_OF_PYTHON = vars(type("", (), {}))["__dict__"].__doc__
_OF_KNOWN = tuple(vars(kind)["__dict__"] for kind in (types.ModuleType, types.SimpleNamespace, type(functools.lru_cache(len))))
_NOTHING = object()


def mro_of(kind):
    return _mro(kind)


def module_of(kind):
    """@return the name of the module that a class was made in; "" where it does not say, or something else."""
    try:
        found = _module(kind)
    except AttributeError:  # made by type() in code that Python has no module of
        return ""
    return found if type(found) is str else ""


def path_of(kind):
    """@return a class's name in its module, and the module's"""
    return module_of(kind) + "." + _qualified_name(kind)


def members_of(kind):
    """@return what a class itself has, by name"""
    return [(name, member) for name, member in _of_class(kind).items() if type(name) is str]


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
    if not (type(held) is types.GetSetDescriptorType and held.__doc__ == _OF_PYTHON or any(held is one for one in _OF_KNOWN)):
        return {}
    try:
        return held.__get__(thing)
    except AttributeError:  # of a class that has several bases, one of which is written in C
        return {}


def attribute(thing, name):
    """@return an attribute in an object's dictionary or slots; None where it is in neither."""
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


def is_one_of(kind, kinds):
    """@return whether a class is one of a set of classes, all of which are plain: one with a metaclass may compare itself."""
    return type(kind) is type and kind in kinds


def value_at(thing, key):
    """@return what a dict has at a text; None for other objects."""
    return dict.get(thing, key) if issubclass(type(thing), dict) else None
