"""Finds the modules that a function calls which Dynamo compiles. The graph has their ids, and their places in the function's
locals and globals, where they are looked up. This runs no code of the program: no property, no __getattr__.
"""
import re
import sys

_PLACE = re.compile(r"([LG])\['(\w+)'\](.*)")
_STEP = re.compile(r"\.(\w+)|\['([^']*)'\]|\[(\d+)\]")


def find(places, kind):
    """@param places  id of a module -> its place, as "L['self'].model"
    @return the modules that were found, in order"""
    found, variables = [], None
    for number, place in places.items():
        variables = variables or _variables()
        module = _at(place, variables)
        if id(module) == number and issubclass(type(module), kind):
            found.append(module)
    return found


def _variables():
    """@return the locals and globals of the function that this thread compiles, from variables of Dynamo's frame."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith("convert_frame.py"):
            known = frame.f_locals
            if type(known.get("locals")) is dict and type(known.get("globals")) is dict:
                return {"L": known["locals"], "G": known["globals"]}
        frame = frame.f_back
    return {"L": {}, "G": {}}


def _at(place, variables):
    match = _PLACE.fullmatch(place)
    if match is None:
        return None
    value, at = variables[match[1]].get(match[2]), 0
    while at < len(match[3]) and value is not None:
        step = _STEP.match(match[3], at)
        if step is None:
            return None
        at = step.end()
        value = _member(value, step[1]) if step[1] is not None else _item(value, step[2], step[3])
    return value


def _member(value, name):
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    modules = own.get("_modules")
    return own[name] if name in own else modules.get(name) if type(modules) is dict else None


def _item(value, key, index):
    if index is not None:
        return value[int(index)] if type(value) in (list, tuple) and int(index) < len(value) else None
    return value.get(key) if type(value) is dict else None
