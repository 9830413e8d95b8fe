"""Texts of the code that runs, for CONVTRACE_SOURCE=1: the program's own files and the classes of its modules, optimizers and
autograd Functions. A file that was written since the observer was loaded may not be what Python has loaded: it has no text.

A text is `FIRST_LINE` and a line end, then the lines themselves."""
import dis
import functools
import os
import re
import time
import types

from ..base import contents

are_recorded = False  # set once, before the first class is looked at

_BEGUN = time.time()
_MAX_FILE_BYTES = 1 << 22
_MAX_BYTES = 60_000  # of a text: a string of a trace holds 64 KiB
_MAX_HEAD = 200  # lines between a class's statement and its first method


def of_file(path):
    """@return a file's text, without what is beyond the limit; None if it cannot be read, or is newer than this process."""
    lines = _lines(path)
    return None if lines is None else _text(1, lines)


def of_class(kind):
    """@return the lines of a class from its `class` statement to the end of its last method; None if it has no method of its own
    in a file, or that cannot be read."""
    name = contents.name_of(kind)
    codes = [member.__code__ for _, member in contents.members_of(kind) if type(member) is types.FunctionType]
    own = [code for code in codes if code.co_filename == codes[0].co_filename]
    lines = _lines(own[0].co_filename) if own else None
    if lines is None:
        return None
    first = min(code.co_firstlineno for code in own)
    head = next((line for line in range(first, max(0, first - _MAX_HEAD), -1)
                 if line <= len(lines) and re.match(r"\s*class %s\b" % re.escape(name), lines[line - 1])), None)
    if head is None:  # methods that were made elsewhere
        return None
    return _text(head, lines[head - 1:max(map(_last_line, own))])


def _last_line(code):
    inner = [_last_line(one) for one in code.co_consts if type(one) is types.CodeType]
    return max([code.co_firstlineno, *inner, *(line for _, line in dis.findlinestarts(code) if line)])


def _lines(path):
    return _lines_of(path) if are_recorded and os.path.isfile(path) else None


@functools.lru_cache(maxsize=1)  # many classes of one file, one after the other
def _lines_of(path):
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mtime > _BEGUN:
                return None
            return file.read(_MAX_FILE_BYTES).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):  # ValueError: a zero byte in a made-up name
        return None


def _text(first, lines):
    text = "%d\n%s" % (first, "\n".join(lines))
    data = text.encode("utf-8", "replace")
    return text if len(data) <= _MAX_BYTES else data[:_MAX_BYTES].decode("utf-8", "ignore").rpartition("\n")[0]
