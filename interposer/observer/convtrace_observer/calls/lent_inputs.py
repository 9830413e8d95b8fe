"""Data that lies in memory of somebody else (an array of NumPy, a buffer of a loader): whether it is the same when the
backward pass begins, which computes with it again. PyTorch counts no write to it that does not go through a tensor.
"""
import weakref

from ..base import engine, values

_MOST = 64  # tensors of one step


class LentInputs:
    """Holds weak references to storages, no tensor."""

    def __init__(self, observer):
        self._observer = observer
        self._step, self._noted = -1, []

    def note(self, place, args, kwargs):
        """A root is about to be called in training."""
        observer, read = self._observer, self._observer.read
        if self._step != observer.step:
            self._step, self._noted = observer.step, []
        with read.unobserved():
            for name, tensor in observer.modules.named_inputs(args, kwargs):
                value = read.again(tensor)
                if value is not None and value.device != values.CUDA and read.borrows(tensor) and len(self._noted) < _MOST:
                    storage = weakref.ref(tensor.untyped_storage())
                    self._noted.append((storage, value, place.id, observer.modules.slot("lent", name)))

    def look_again(self, thread):
        """A backward pass begins. A storage that lives, with its memory where it was, may be read."""
        if self._step != self._observer.step:
            return
        noted, self._noted = self._noted, []
        for reference, value, scope, slot in noted:
            storage = reference()
            if storage is not None and (storage.data_ptr(), storage.nbytes()) == (value.base, value.storage_bytes):
                thread.batch.tensor(engine.BACKWARD, engine.HASH, scope, 0, slot, 0, value)
                self._observer.submit(thread)  # while the storage is held
