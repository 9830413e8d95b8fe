"""Has the software that is named fetch the driver's functions, and prints which wrappers of ours lie in its memory.

usage: taken.py runtime LIBRARY | taken.py bindings
"""
import ctypes
import json
import struct
import sys

from answers import identify


def start(arguments):
    """@return what is in the paths of the libraries that keep the functions."""
    if arguments[0] == "bindings":
        from cuda.bindings import driver
        driver.cuInit(0)
        return "/cuda/bindings/"
    count = ctypes.c_int()
    ctypes.CDLL(arguments[1]).cudaGetDeviceCount(ctypes.byref(count))
    return arguments[1]


def words(owner):
    """Yields the words in the writable mappings of files with `owner` in their path, and in the unnamed ones directly after."""
    last_end = None
    with open("/proc/self/maps") as maps:
        lines = maps.readlines()
    for line in lines:
        fields = line.split(None, 5)
        begin, end = (int(part, 16) for part in fields[0].split("-"))
        path = fields[5].strip() if len(fields) > 5 else ""
        if owner in path or (not path and begin == last_end):
            last_end = end
            if fields[1].startswith("rw"):
                yield from (word for word, in struct.iter_unpack("Q", ctypes.string_at(begin, end - begin)))


def own_range():
    with open("/proc/self/maps") as maps:
        parts = [line.split()[0].split("-") for line in maps if line.rstrip().endswith("/libconvtrace.so")]
    return (int(parts[0][0], 16), int(parts[-1][1], 16)) if parts else (0, 0)


if __name__ == "__main__":
    OWNER = start(sys.argv[1:])
    BEGIN, END = own_range()
    FOUND = {identify(word)[1] for word in set(words(OWNER)) if BEGIN <= word < END}
    json.dump(sorted(FOUND), sys.stdout)
