"""Brings the observer into every Python process that was started under the preload library.

The preload library puts this folder first in PYTHONPATH, so the interpreter imports this file
instead of a sitecustomize that the user may have. It must parse on any Python, cost nothing where
there is nothing to observe, say nothing, and hand over to the file it hides.
"""
import sys


def _observe():
    import os  # loaded by the interpreter before site runs

    if os.environ.get("CONVTRACE_CORE") and sys.version_info >= (3, 8):
        from convtrace_observer import arrival

        arrival.install()


def _chain():
    """Imports the sitecustomize that this one hides, with the path and the module table as they
    would be without us; what it raises is its own and belongs to the interpreter."""
    this = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if getattr(error, "name", __name__) != __name__:
            raise
        sys.modules[__name__] = this


def _main():
    folder = __file__.replace("\\", "/").rpartition("/")[0]
    try:
        _observe()
    except Exception:
        pass  # a missing observer is visible in the trace, never in the program
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    _chain()


if __name__ == "sitecustomize":
    _main()
