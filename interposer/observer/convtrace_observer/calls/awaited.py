"""Records values that a functional collective may still be writing when a module takes or returns them.

torch passes such a value on as an AsyncCollectiveTensor, alone or inside a DTensor, and waits when the program first
computes with it. Until then its memory is not read; the record is made after that wait, on the thread and the stream that
waited. The observer itself never waits and holds no tensor: a value is known by its storage, whose number is never reused.
"""
from ..base import engine, values


class Awaited:
    def __init__(self, observer):
        self._observer = observer
        self._kept = {}  # number of a storage -> [(place, values.Memory)]

    def keep(self, tensor, *place):
        """Keeps a value to record it after the wait, if it may still be written. Must run inside `with read.unobserved()`.
        @param place  the arguments of Batch.tensor before the op
        @return whether the value is kept"""
        value = self._observer.read.unfinished(tensor)
        if value is not None:
            self._kept.setdefault(value.storage, []).append((place, value))
        return value is not None

    def waited_for(self, tensor):
        """Records the values in a tensor that the program has waited for. Must run inside `with read.unobserved()`."""
        observer, read = self._observer, self._observer.read
        kept = self._kept.pop(read.finish(tensor), None)
        if kept is None or not observer.active:
            return
        batch, base = engine.Batch(observer.port), read.base(tensor)
        for place, value in kept:
            if value.base == base:
                batch.tensor(*place, 0, read.on_current_stream(value))
            else:
                _lose(batch, [value])  # the storage has got other memory
        batch.submit()

    def give_up(self):
        """Counts the values that the program has not waited for as lost, at the end of a step."""
        if not self._kept:
            return
        kept, self._kept = self._kept, {}
        if self._observer.active:
            batch = engine.Batch(self._observer.port)
            _lose(batch, [value for one in kept.values() for _, value in one])
            batch.submit()

    def forget(self):
        self._kept.clear()


def _lose(batch, lost):
    """Counts values as lost. The reason depends on the memory, since host memory has no stream."""
    on_host = sum(value.device == values.CPU for value in lost)
    for reason, count in ((engine.LOST_COLLECTIVE_MISSED, on_host), (engine.LOST_STREAM_UNSAFE, len(lost) - on_host)):
        if count:
            batch.loss(reason, count)
