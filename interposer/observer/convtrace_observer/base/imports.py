"""Waits for modules that the program imports itself."""
import _thread
import sys

from . import frames


def watch(name, then):
    """Calls `then` with a module now if it is imported already, else as soon as it is.
    @return a function that ends the watch."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    return lambda: _remove(finder)


class _Finder:
    """First in sys.meta_path until its module is imported. Programs also look for a module without importing it."""

    def __init__(self, name, then):
        self._name, self._then = name, then
        self._thread = _thread._local()

    def find_spec(self, name, path=None, target=None):
        if name != self._name or hasattr(self._thread, "searches"):
            return None
        self._thread.searches = True
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find is not None else None
                if spec is not None:
                    self._watch(spec.loader)
                    return spec
        finally:
            del self._thread.searches
        return None

    def _watch(self, loader):
        """Replaces exec_module on this one loader object for one import."""
        try:
            execute = loader.exec_module

            def exec_module(module):
                vars(loader).pop("exec_module", None)  # gone where another watch of this module came first
                try:
                    execute(module)
                except BaseException as error:
                    frames.hide(error)
                    raise
                if self in sys.meta_path:
                    _remove(self)
                    self._then(module)

            loader.exec_module = exec_module
        except Exception:
            pass  # a loader that cannot be watched (no such attribute) imports the module as ever


def _remove(finder):
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
