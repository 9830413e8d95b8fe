"""Follows tensors while a collective uses them: from a call with async_op=True, isend or irecv to the wait for its Work.
Uses of them in between are judged from the records (format/findings/collectives/).

Only calls that return the Work to the program are followed: those that Python code makes through torch.distributed. A wait
in C++ (DDP's reducer), or for a future that was passed on, is not visible here.
"""
import os
import sys

from ..base import FOLDER, engine, values

_MOST, _MOST_STEPS = 256, 1  # calls under way at once; steps after that of the call until it is given up
_CALLER = "torch.distributed.distributed_c10d"
_TRANSFERS = ("isend", "irecv")  # its functions that do not wait


class _Flight:
    """A call under way. `parts`: for each tensor (tensor, values.Memory, id of its slot, whether the call writes it, whether a
    changed count of writes is due to the program). `writes`: whether the call writes any. `seen`: the counts of writes at
    the last beginning of a step. `acknowledged`: the counts when the program received a later message, which may tell it
    that this call's message has arrived."""

    __slots__ = ("parts", "op", "place", "line", "step", "work", "writes", "seen", "acknowledged")

    def __init__(self, parts, op, place, line, step):
        self.parts, self.op, self.place, self.line, self.step = parts, op, place, line, step
        self.work = self.acknowledged = None
        self.writes = any(writes for _, _, _, writes, _ in parts)
        self.seen = [value.version for _, value, _, _, _ in parts]

    def versions(self):
        """@return the count of writes of each tensor."""
        return [values.version(tensor) for tensor, _, _, _, _ in self.parts]


class Flights:
    def __init__(self, observer, torch):
        self._observer = observer
        self._torch = os.path.dirname(torch.__file__) + os.sep
        self._known = {}  # id of the work's Python object -> _Flight

    def prepare(self, place, name, asks_async, sent, received, is_counted):
        """Describes a call that is about to be made at `place` (scope, call, phase). Must run inside `with read.unobserved()`.
        @param asks_async  whether the caller has asked not to wait
        @param is_counted  whether the backend's own writes to received tensors change the count of writes
        @return the argument of begin(); None for a call that is not followed"""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(FOLDER):
            frame = frame.f_back
        if frame is None or frame.f_globals.get("__name__") != _CALLER:
            return None
        if not asks_async and frame.f_code.co_name not in _TRANSFERS:
            return None
        parts, slot = [], self._observer.modules.slot
        for kind, tensors, writes in (("sent", sent, False), ("received", received, True)):
            for index, tensor in enumerate(tensors):
                value = self._observer.read(tensor)
                if value is not None and value.device == values.CPU:
                    owns = _fills_its_storage(tensor, value)
                    parts.append((tensor, value, slot(kind, index), writes, owns and not (writes and is_counted)))
        written = {value.storage for _, value, _, writes, _ in parts if writes}
        parts = [part for part in parts if part[3] or part[1].storage not in written]
        if not parts:
            return None
        return _Flight(parts, name, place, self._line(frame), self._observer.step)

    def begin(self, flight, work):
        """Starts to follow a call that has been made. @param work  its Python object"""
        if len(self._known) >= _MOST:
            self._give_up(next(iter(self._known)))
        flight.work = work
        self._known[id(work)] = flight
        self._tell(flight, flight.place, 0, flight.line, [writes for _, _, _, writes, _ in flight.parts])

    def end(self, work):
        """Stops following a call: the program waits for it, learns that it is complete, or takes its future."""
        flight = self._known.pop(id(work), None)
        if flight is not None and self._observer.active:
            try:
                self._landed(flight, flight.versions(), self._line(sys._getframe(1)))
            except Exception as error:
                self._observer.failed("collectives", error)

    def received(self):
        """Notes for all calls that only send that the program has received a message."""
        for flight in self._known.values():
            if not flight.writes and flight.acknowledged is None:
                flight.acknowledged = flight.versions()

    def any(self):
        """@return whether any calls are under way."""
        return bool(self._known)

    def give_up(self, step=None):
        """Stops following calls that were not waited for by the beginning of `step`, or all calls without it. If values were
        not recorded in the step that ends, its receptions may have been missed."""
        for key, flight in list(self._known.items()):
            if not flight.writes and flight.acknowledged is None:
                flight.acknowledged = None if self._observer.capture else flight.seen
                flight.seen = flight.versions()
            if step is None or flight.step + _MOST_STEPS < step:
                self._give_up(key)

    def forget(self):
        """Forgets all calls. @return their works, which must not be destroyed in a forked child."""
        works = [flight.work for flight in self._known.values()]
        self._known.clear()
        return works

    def _give_up(self, key):
        flight = self._known.pop(key)
        if self._observer.active:
            self._landed(flight, flight.acknowledged or flight.versions(), 0)

    def _landed(self, flight, versions, line):
        thread, base = self._observer.threads.state, self._observer.read.base
        with self._observer.read.unobserved():
            written = [counts and version != value.version and base(tensor) == value.base
                       for (tensor, value, _, _, counts), version in zip(flight.parts, versions)]
        self._tell(flight, (*thread.place(), thread.slot[1]), 1, line, written)

    def _tell(self, flight, place, is_end, line, written):
        batch, (scope, call, phase) = engine.Batch(self._observer.port), place
        for (_, value, slot, _, _), is_written in zip(flight.parts, written):
            batch.flight(phase, is_end, is_written, scope, call, flight.op, slot, line, value, values.span_bytes(value))
        batch.submit()

    def _line(self, frame):
        """@return the id of the program's line that calls torch; 0 if there is none."""
        while frame is not None:
            code = frame.f_code
            if not code.co_filename.startswith((FOLDER, self._torch)):
                return self._observer.port.intern("%s (%s:%d)" % (code.co_name, code.co_filename, frame.f_lineno))
            frame = frame.f_back
        return 0


def _fills_its_storage(tensor, value):
    """@return whether a tensor covers its whole storage, so that every write counted for its views is also one to it."""
    return values.span_bytes(value) == value.storage_bytes and tensor.numel() * tensor.element_size() == value.storage_bytes
