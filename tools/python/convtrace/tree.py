"""Where the programs are of the tree that this package is in."""
import os


def program(name):
    """The path of `convtrace` or `convtrace-diff`. Raises FileNotFoundError."""
    folder = os.path.dirname(os.path.abspath(__file__))
    # In a wheel the tree is in the package; else the package is in the tree, in share/convtrace/python.
    for tree in (os.path.join(folder, "tree"), os.path.normpath(os.path.join(folder, *4 * [".."]))):
        path = os.path.join(tree, "bin", name)
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("%s: the program is not beside this package; was only a part installed?" % name)
