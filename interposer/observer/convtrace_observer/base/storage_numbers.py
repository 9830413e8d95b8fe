"""Numbers of storages, of which no storage ever has another's."""
import itertools

from . import tokens

_SWEPT_FIRST = 4096  # storages, before the first look for those that are gone

count = itertools.count(1)  # of all observers of a process


class StorageNumbers:
    """A storage is known by the dictionary of its attributes. torch >= 2.1 keeps the Python object of a storage exactly as
    long as the memory's owner lives (older: a new one every time, so that no two values are ever taken for one). While the
    dictionary is kept here, no other storage has it. Nothing is written into it."""

    def __init__(self):
        self._known = {}  # id of the dictionary -> (the dictionary, number)
        self._most = _SWEPT_FIRST

    def of(self, storage):
        token = storage.__dict__
        known = self._known.get(id(token))
        if known is None:
            if len(self._known) >= self._most:
                tokens.forget_dead(self._known)
                self._most = max(_SWEPT_FIRST, 2 * len(self._known))
            known = self._known[id(token)] = token, next(count)
        return known[1]

