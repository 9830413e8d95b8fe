"""Numbers of storages, of which no storage ever has another's."""
import itertools

from . import tokens

_SWEPT_FIRST = 64  # storages, before the first look for those that are gone

count = itertools.count(1)  # of all observers of a process


class StorageNumbers:
    """A storage is known by the dictionary of its attributes. torch >= 2.1 keeps the Python object of a storage exactly as
    long as the memory's owner lives (older: a new one every time, so that no two values are ever taken for one). While the
    dictionary is kept here, no other storage has it. Nothing is written into it."""

    def __init__(self):
        self._known = {}  # id of the dictionary -> (the dictionary, number)
        self._most, self._met = _SWEPT_FIRST, False

    def of(self, storage):
        token = storage.__dict__
        known = self._known.get(id(token))
        if known is None:
            if len(self._known) >= self._most:
                self._forget_dead()
            known = self._known[id(token)] = token, next(count)
            self._met = True
        return known[1]

    def sweep(self):
        """Lets go of storages that are gone, where any were met since the last time: a program may have put attributes on
        them."""
        if self._met:
            self._forget_dead()

    def _forget_dead(self):
        tokens.forget_dead(self._known)
        self._most, self._met = max(_SWEPT_FIRST, 2 * len(self._known)), False
