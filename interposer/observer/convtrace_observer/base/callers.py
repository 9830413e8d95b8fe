"""Finds the objects whose methods are running: the `self` of each function on the stack.

A frame's `f_locals` would keep a function's objects alive until the function ends: Python 3.11 and before write them to a
dictionary of the frame, which the program may hold as well. PyFrame_GetVar, since Python 3.12, returns one variable and
keeps nothing. Python 3.11 has no such function: there the variable is read from the interpreter's own frame
(Include/internal/pycore_frame.h), after the fields around it have been verified. Before 3.11 nothing is found.
"""
import ctypes
import sys
import types

from . import FOLDER

_MOST_FRAMES = 256
_SELF = "self"
_WORD = ctypes.sizeof(ctypes.c_void_p)
# Words of PyFrameObject and of _PyInterpreterFrame in Python 3.11.
_INTERPRETER_FRAME, _GLOBALS, _CODE, _FRAME, _VARIABLES = 3, 1, 4, 5, 9


def selves():
    """@return the objects whose methods run on this thread, the innermost first, each once. Only variables named `self`
    count, and functions of the observer are skipped."""
    found, seen, frame, left = [], set(), sys._getframe(1), _MOST_FRAMES
    while frame is not None and left:
        code = frame.f_code
        if _has_self(code) and not code.co_filename.startswith(FOLDER):
            for one in _of(frame, code):
                if id(one) not in seen:
                    seen.add(id(one))
                    found.append(one)
        frame, left = frame.f_back, left - 1
    return found


def _has_self(code):
    return (code.co_argcount and code.co_varnames[0] == _SELF) or _SELF in code.co_freevars


def _of_variable(frame, code):
    """Reads `self` by PyFrame_GetVar. @return a tuple of it, or ()."""
    try:
        return (_get_variable(frame, _SELF),)
    except NameError:  # it was deleted, or is not set yet
        return ()


def _in_memory(frame, code):
    """Reads `self` from the memory of a frame of Python 3.11. @return a tuple of it, or ()."""
    inner = _word(id(frame), _INTERPRETER_FRAME)
    if (not inner or _word(inner, _CODE) != id(code) or _word(inner, _FRAME) != id(frame)
            or _word(inner, _GLOBALS) != id(frame.f_globals)):
        return ()
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    at = 0 if _SELF not in code.co_freevars else len(code.co_varnames) + len(cells) + code.co_freevars.index(_SELF)
    address = _word(inner, _VARIABLES + at)
    if not address:
        return ()
    found = ctypes.cast(address, ctypes.py_object).value
    if type(found) is not types.CellType:
        return (found,)
    try:
        return (found.cell_contents,)
    except ValueError:  # it is empty
        return ()


def _word(address, index):
    return ctypes.c_void_p.from_address(address + index * _WORD).value


def _choose():
    global _get_variable
    if sys.version_info >= (3, 12) and hasattr(ctypes.pythonapi, "PyFrame_GetVar"):
        _get_variable = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)(
            ("PyFrame_GetVar", ctypes.pythonapi))
        return _of_variable
    is_known = sys.implementation.name == "cpython" and not hasattr(sys, "getobjects")  # a build with a list of all objects
    return _in_memory if is_known and sys.version_info[:2] == (3, 11) else lambda frame, code: ()


_get_variable = None
_of = _choose()
