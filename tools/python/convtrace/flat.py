"""Reads FlatBuffers without generated code: fields by their ids in format/schema/*.fbs, every length checked."""
import struct

from . import limits

_NUMBERS = {code: struct.Struct("<" + code) for code in "BHIQi?"}


class BadBuffer(ValueError):
    """The bytes are not a buffer of the expected kind."""


class _TextBudget:
    """Limits the texts of a buffer to its size: many offsets may lead to one long text, whose copies would use up memory."""

    def __init__(self, raw_size):
        self._left = raw_size

    def take(self, size):
        if size > self._left:
            raise BadBuffer("texts longer than their payload")
        self._left -= size


class Reader:
    """One table. Absent fields read as zeros, empty texts and empty vectors."""

    def __init__(self, data, position, text_budget):
        self._data, self._position, self._text_budget = data, position, text_budget

    @classmethod
    def root(cls, data, identifier):
        if len(data) < 12 or bytes(data[4:8]) != identifier:
            raise BadBuffer("no %s buffer" % identifier.decode())
        return cls(data, _number(data, 0, "I"), _TextBudget(len(data)))

    def number(self, field, code="I"):
        at = self._at(field)
        return _number(self._data, at, code) if at else 0

    def text(self, field):
        at = self._at(field)
        return self._text(at) if at else ""

    def short_text(self, field):
        """@return a text. One beyond the limit is damage here, while text() cuts it off."""
        at = self._at(field)
        if at and self._text_size(at) > limits.TEXT_BYTES:
            raise BadBuffer("a text beyond the limit")
        return self.text(field)

    def texts(self, field):
        return [self._text(at) for at in self._elements(field)]

    def table(self, field):
        at = self._at(field)
        if not at:
            return None
        return self._child(at)

    def tables(self, field, count):
        """@return the tables of a vector, which must have exactly `count`."""
        elements = self._elements(field)
        if len(elements) != count:
            raise BadBuffer("%d tables for %d events" % (len(elements), count))
        return [self._child(at) for at in elements]

    def column(self, field, code):
        """@return a vector of numbers as a memoryview of their type."""
        start, count = self._vector(field)
        size = struct.calcsize(code)
        if start + count * size > len(self._data):
            raise BadBuffer("a vector ends outside the buffer")
        if start % size:
            raise BadBuffer("a vector that is not aligned")
        return memoryview(self._data)[start:start + count * size].cast(code)

    def count(self, field):
        """@return the number of elements in a vector of texts or tables."""
        return len(self._elements(field))

    def _at(self, field):
        """@return the position of a field; 0 if it is absent."""
        vtable = self._position - _number(self._data, self._position, "i")
        entry = 4 + 2 * field
        if entry >= _number(self._data, vtable, "H"):
            return 0
        offset = _number(self._data, vtable + entry, "H")
        return offset + self._position if offset else 0

    def _vector(self, field):
        at = self._at(field)
        if not at:
            return 0, 0
        start = at + _number(self._data, at, "I")
        return start + 4, _number(self._data, start, "I")

    def _elements(self, field):
        start, count = self._vector(field)
        if start + 4 * count > len(self._data):
            raise BadBuffer("a vector ends outside the buffer")
        return range(start, start + 4 * count, 4)

    def _child(self, at):
        return Reader(self._data, at + _number(self._data, at, "I"), self._text_budget)

    def _text_size(self, at):
        return _number(self._data, at + _number(self._data, at, "I"), "I")

    def _text(self, at):
        size = self._text_size(at)
        start = at + _number(self._data, at, "I") + 4
        if start + size > len(self._data):
            raise BadBuffer("a text ends outside the buffer")
        self._text_budget.take(size)
        return bytes(self._data[start:start + min(size, limits.TEXT_BYTES)]).decode("utf-8", "replace")


def _number(data, at, code):
    """@return the little-endian number at a position. `code`: its format in struct."""
    try:
        if at >= 0:
            return _NUMBERS[code].unpack_from(data, at)[0]
    except struct.error:
        pass
    raise BadBuffer("an offset leads outside the buffer")
