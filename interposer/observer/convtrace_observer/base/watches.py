"""Reports the death of storages in whose memory an output lies without owning it.

The callback of a weak reference to `untyped_storage()` runs when the memory's owner dies (not when
a Python name goes out of scope, not while a view lives) and before the memory is freed, on the
thread that drops it: its Python frames are the place of the bug.
"""
import weakref

from . import engine, scopes


class _StorageReference(weakref.ref):
    __slots__ = ("identity",)


class Watches:
    def __init__(self, port, reader):
        self._port, self._reader = port, reader
        self._references = {}  # storage identity -> reference, kept so that it can call back

    def add(self, tensor):
        storage = tensor.untyped_storage()
        identity = self._reader.number_of(storage)
        if identity not in self._references:
            reference = _StorageReference(storage, self._died)
            reference.identity = identity
            self._references[identity] = reference

    def clear(self):
        self._references.clear()

    def _died(self, reference):
        """Reports that a storage died. May run at any moment on any thread, also while that thread packs its batch."""
        try:
            if self._references.pop(reference.identity, None) is not None:
                batch = engine.Batch(self._port)
                batch.frames(engine.STORAGE_DEAD, reference.identity, scopes.python_frames())
                batch.submit()
        except Exception:
            pass  # also at interpreter exit, when modules are partly destroyed
