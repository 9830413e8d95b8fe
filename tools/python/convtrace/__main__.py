"""The programs `convtrace` and `convtrace-diff` of the tree: `python -m convtrace run ...`."""
import os
import sys

from . import tree


def _become(name):
    program = tree.find("bin/" + name)
    if program is None:
        sys.exit("%s: the program is not beside this package; was only a part installed?" % name)
    os.execv(program, [name, *sys.argv[1:]])


def convtrace():
    _become("convtrace")


def convtrace_diff():
    _become("convtrace-diff")


if __name__ == "__main__":
    convtrace()
