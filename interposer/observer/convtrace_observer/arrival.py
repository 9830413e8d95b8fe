"""Waits for the program's own `import torch`, then starts the observer.

Nothing here touches torch, imports anything of weight or prints: this module is loaded in every
Python process of a traced job, also in those that never train.
"""
import sys

_TORCH = "torch"


class _Finder:
    """First in sys.meta_path until torch is looked for; then it removes itself."""

    def find_spec(self, name, path=None, target=None):
        if name != _TORCH:
            return None
        _remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._watch(spec.loader)
                return spec
        sys.meta_path.insert(0, self)  # not installed: the program may extend its path and retry
        return None

    def _watch(self, loader):
        """Replaces exec_module on this one loader object for this one import."""
        try:
            execute = loader.exec_module

            def exec_module(module):
                del loader.exec_module
                try:
                    execute(module)
                except BaseException:
                    sys.meta_path.insert(0, self)
                    raise
                _start(module)

            loader.exec_module = exec_module
        except Exception:
            pass  # a loader that cannot be watched (no such attribute) imports torch as ever


def _remove(finder):
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)


def _start(torch):
    try:
        from . import observer

        observer.start(torch)
    except Exception:
        pass  # the program must not notice


def install():
    """Starts now when torch is there already, else as soon as it is."""
    torch = sys.modules.get(_TORCH)
    if torch is not None:
        _start(torch)
    else:
        sys.meta_path.insert(0, _Finder())
