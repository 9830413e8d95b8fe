"""The programs `convtrace` and `convtrace-diff` of the tree that this package is in: `python -m convtrace run ...`."""
import os
import sys

from . import tree


def _become(name):
    try:
        os.execv(tree.program(name), [name, *sys.argv[1:]])
    except FileNotFoundError as error:
        sys.exit(str(error))


def convtrace():
    _become("convtrace")


def convtrace_diff():
    _become("convtrace-diff")


if __name__ == "__main__":
    convtrace()
