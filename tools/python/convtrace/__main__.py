"""The programs `convtrace` and `convtrace-diff` of the tree that this package is in: `python -m convtrace run ...`."""
import os
import sys


def _become(name):
    folder = os.path.dirname(os.path.abspath(__file__))
    # In a wheel the tree is in the package; else the package is in the tree, in share/convtrace/python.
    for tree in (os.path.join(folder, "tree"), os.path.normpath(os.path.join(folder, *4 * [".."]))):
        program = os.path.join(tree, "bin", name)
        if os.access(program, os.X_OK):
            os.execv(program, [name, *sys.argv[1:]])
    sys.exit("%s: the program is not beside this package; was only a part installed?" % name)


def convtrace():
    _become("convtrace")


def convtrace_diff():
    _become("convtrace-diff")


if __name__ == "__main__":
    convtrace()
