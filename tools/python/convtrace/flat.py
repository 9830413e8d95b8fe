"""FlatBuffers without generated code: fields by their ids in format/schema/*.fbs, every length checked."""
import struct

from flatbuffers import number_types
from flatbuffers.table import Table

from . import limits

_FLAGS = {"B": number_types.Uint8Flags, "H": number_types.Uint16Flags, "I": number_types.Uint32Flags,
          "Q": number_types.Uint64Flags, "?": number_types.BoolFlags}


class BadBuffer(ValueError):
    """The bytes are no buffer of the expected kind."""


class _TextBudget:
    """Offsets may all lead to one long text: copies must not outgrow the payload."""

    def __init__(self, raw_size):
        self._left = raw_size

    def take(self, size):
        if size > self._left:
            raise BadBuffer("texts longer than their payload")
        self._left -= size


class Reader:
    """One table. Absent fields read as zeros, empty texts and empty vectors."""

    def __init__(self, table, text_budget):
        self._table, self._text_budget = table, text_budget

    @classmethod
    def root(cls, data, identifier):
        if len(data) < 12 or bytes(data[4:8]) != identifier:
            raise BadBuffer("no %s buffer" % identifier.decode())
        return cls(Table(data, _u32(data, 0)), _TextBudget(len(data)))

    def number(self, field, code="I"):
        at = self._at(field)
        return self._guard(lambda: self._table.Get(_FLAGS[code], at)) if at else 0

    def text(self, field):
        at = self._at(field)
        return self._text(at) if at else ""

    def short_text(self, field):
        """A text that may not be longer than a text may be: one that is, is damage."""
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
        return self._guard(lambda: self._child(self._table.Indirect(at)))

    def tables(self, field, count):
        """Exactly `count` tables."""
        elements = self._elements(field)
        if len(elements) != count:
            raise BadBuffer("%d tables for %d events" % (len(elements), count))
        return [self._child(at + _u32(self._table.Bytes, at)) for at in elements]

    def column(self, field, code):
        """A vector of numbers as a memoryview of their type."""
        start, count = self._vector(field)
        size = struct.calcsize(code)
        if start + count * size > len(self._table.Bytes):
            raise BadBuffer("a vector ends outside the buffer")
        if start % size:
            raise BadBuffer("a vector that is not aligned")
        return memoryview(self._table.Bytes)[start:start + count * size].cast(code)

    def count(self, field):
        """Elements of a vector of texts or tables."""
        return len(self._elements(field))

    def _at(self, field):
        offset = self._guard(lambda: self._table.Offset(4 + 2 * field))
        return offset + self._table.Pos if offset else 0

    def _vector(self, field):
        at = self._at(field)
        if not at:
            return 0, 0
        start = at + _u32(self._table.Bytes, at)
        return start + 4, _u32(self._table.Bytes, start)

    def _elements(self, field):
        start, count = self._vector(field)
        if start + 4 * count > len(self._table.Bytes):
            raise BadBuffer("a vector ends outside the buffer")
        return range(start, start + 4 * count, 4)

    def _child(self, position):
        return Reader(Table(self._table.Bytes, position), self._text_budget)

    def _text_size(self, at):
        return _u32(self._table.Bytes, at + _u32(self._table.Bytes, at))

    def _text(self, at):
        data, size = self._table.Bytes, self._text_size(at)
        start = at + _u32(data, at) + 4
        if start + size > len(data):
            raise BadBuffer("a text ends outside the buffer")
        self._text_budget.take(size)
        return bytes(data[start:start + min(size, limits.TEXT_BYTES)]).decode("utf-8", "replace")

    @staticmethod
    def _guard(read):
        try:
            return read()
        except (struct.error, IndexError, TypeError, ValueError) as error:
            raise BadBuffer(str(error)) from None


def _u32(data, at):
    try:
        return struct.unpack_from("<I", data, at)[0]
    except struct.error:
        raise BadBuffer("an offset leads outside the buffer") from None
