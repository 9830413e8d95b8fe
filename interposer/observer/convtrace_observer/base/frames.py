"""Keeps the observer's frames out of the program's tracebacks, which show its own frames and torch's.

A function of ours that replaces one of torch's calls the original. An exception of the original passes through our
frame, which hide() takes out of the traceback. Where our frame replaces a frame of torch that only passes on its arguments,
it gets that one's name and lines. On the stack of a running program our frames are visible.
"""
import sys

from . import FOLDER, signals

# warnings.warn() skips frames whose file has both words in its name when it counts the levels of a stack.
_PASSED_BY = " (importlib _bootstrap)"

_MOST_UNITS = 8  # of code for which one entry of a table of positions stands
_LONG_FORM = 14  # of an entry: lines and columns as they are


def hide(error):
    """Takes our frames off the outer end of the traceback of an error that a function of ours passes on. Called where it
    was caught, before `raise`, which up to Python 3.10 adds them again."""
    traceback = signals.traceback_of(error)
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(FOLDER):
        traceback = traceback.tb_next
    signals.set_traceback(error, traceback)


def hide_all(error):
    """Takes our frames out of the traceback of an error that leaves the observer: one raised by a signal handler, which may
    run anywhere in it.
    @return the traceback"""
    first = last = None
    traceback = signals.traceback_of(error)
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(FOLDER):
            if last is None:
                first = traceback
            elif last.tb_next is not traceback:
                last.tb_next = traceback
            last = traceback
        traceback = traceback.tb_next
    if last is not None and last.tb_next is not None:
        last.tb_next = None
    signals.set_traceback(error, first)
    return first


_known = {}  # code as it was compiled -> code of the frames


def skip(code):
    """Keeps Dynamo from compiling code that this module makes. Does nothing until the observer replaces it (dynamo.skip)."""


def unseen(function):
    """Decorates a function that replaces one of torch's, so that the levels of a warning are counted as without it."""
    code = function.__code__
    if code not in _known:
        _known[code] = code.replace(co_filename=code.co_filename + _PASSED_BY)
        skip(_known[code])
    function.__code__ = _known[code]
    return function


def in_place_of(original, function):
    """@param function  uses no global name of its module
    @param original  calls with `*args, **kwargs` as often as `function` does after its first such call
    @return a copy of `function` whose frames look like those of `original` at these calls; `function` itself on a Python
    before 3.11, or if the numbers of calls differ"""
    if sys.version_info < (3, 11):
        return function
    import functools
    import types

    code = function.__code__
    (_, *ours), theirs = _calls(code), _calls(original.__code__)
    if len(ours) != len(theirs):
        return function
    of_line = {one.lineno: other for one, other in zip(ours, theirs)}
    first = original.__code__.co_firstlineno
    units = [of_line.get(line, theirs[-1]) for line, _, _, _ in code.co_positions()]
    shown = code.replace(co_filename=original.__code__.co_filename, co_name=original.__code__.co_name,
                         co_qualname=original.__code__.co_qualname, co_firstlineno=first, co_linetable=_table(units, first))
    skip(shown)
    result = types.FunctionType(shown, original.__globals__, function.__name__, function.__defaults__, function.__closure__)
    return functools.update_wrapper(result, function)


def _calls(code):
    """@return the positions of the calls with `*args, **kwargs`."""
    import dis  # torch has imported it

    return [one.positions for one in dis.get_instructions(code) if one.opname == "CALL_FUNCTION_EX"]


def _table(units, line):
    """@return CPython's table of positions (Objects/locations.md). `units`: the dis.Positions of each unit of code."""
    table, at = bytearray(), 0
    while at < len(units):
        position, count = units[at], 1
        while count < _MOST_UNITS and at + count < len(units) and units[at + count] is position:
            count += 1
        table.append(0x80 | _LONG_FORM << 3 | count - 1)
        moved = position.lineno - line
        _append(table, moved << 1 if moved >= 0 else -moved << 1 | 1)
        _append(table, position.end_lineno - position.lineno)
        _append(table, position.col_offset + 1)
        _append(table, position.end_col_offset + 1)
        line, at = position.lineno, at + count
    return bytes(table)


def _append(table, number):
    """Appends a number, six bits a byte, the lowest first; a further bit marks that more follow."""
    while number >= 64:
        table.append(0x40 | number & 63)
        number >>= 6
    table.append(number)
