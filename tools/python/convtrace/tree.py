"""The tree of programs and libraries that this package belongs to."""
import os

_FOLDER = os.path.dirname(os.path.abspath(__file__))
# In a wheel the tree is in the package; else the package is in the tree, in share/convtrace/python.
_ROOTS = os.path.join(_FOLDER, "tree"), os.path.normpath(os.path.join(_FOLDER, *4 * [".."]))


def find(relative):
    """@return the path of a file of the tree, such as "bin/convtrace"; None if there is no such file."""
    paths = (os.path.join(root, relative) for root in _ROOTS)
    return next(filter(os.path.isfile, paths), None)


def program(name):
    """@return the path of a program of the tree; its bare name, which PATH resolves, if the tree lacks it."""
    return find("bin/" + name) or name
