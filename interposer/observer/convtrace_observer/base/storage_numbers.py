"""Unique numbers of storages, which are never reused."""
import itertools

from . import tokens

_SWEPT_FIRST = 64  # storages, before the first sweep of dead ones
_IN_TURN = 64  # storages of a sweep

count = itertools.count(1)  # of all observers of a process


class StorageNumbers:
    """A storage is known by the dictionary of its attributes. torch >= 2.1 keeps the Python object of a storage exactly as
    long as the memory's owner lives (older: a new one every time, so that no two values are ever taken for one). While the
    dictionary is kept here, no other storage has it. Nothing is written into it."""

    def __init__(self):
        self._known = {}  # id of the dictionary -> (the dictionary, number)
        self._most = _SWEPT_FIRST
        self._met, self._turn = [], iter(())  # ids met since the last sweep; ids still to be examined

    def of(self, storage):
        token = storage.__dict__
        known = self._known.get(id(token))
        if known is None:
            if len(self._known) >= self._most:
                self._forget_dead()
            known = self._known[id(token)] = token, next(count)
            self._met.append(id(token))
        return known[1]

    def sweep(self):
        """Forgets dead storages, whose attributes may hold objects of the program. Examines the storages met since the last
        sweep, most of which live for a step, and a fixed number of the others in turn, so that the time of a step does not
        depend on how many there are. Does nothing if none were met."""
        if not self._met:
            return
        met, self._met = self._met, []
        in_turn = list(itertools.islice(self._turn, _IN_TURN))
        if not in_turn:
            self._turn = iter(list(self._known))
        tokens.forget_dead(self._known, met + in_turn)

    def _forget_dead(self):
        tokens.forget_dead(self._known)
        self._most, self._met = max(_SWEPT_FIRST, 2 * len(self._known)), []
