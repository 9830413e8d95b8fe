"""FlatBuffers without generated code: fields by their ids in format/schema/*.fbs, every length checked."""
import struct

from flatbuffers import number_types
from flatbuffers.table import Table

_FLAGS = {"B": number_types.Uint8Flags, "H": number_types.Uint16Flags, "I": number_types.Uint32Flags,
          "Q": number_types.Uint64Flags, "?": number_types.BoolFlags}


class BadBuffer(ValueError):
    """The bytes are no buffer of the expected kind."""


class Reader:
    """One table. Absent fields read as zeros, empty texts and empty vectors."""

    def __init__(self, table):
        self._table = table

    @classmethod
    def root(cls, data, identifier):
        if len(data) < 12 or bytes(data[4:8]) != identifier:
            raise BadBuffer("no %s buffer" % identifier.decode())
        return cls(Table(data, _u32(data, 0)))

    def number(self, field, code="I"):
        at = self._at(field)
        return self._guard(lambda: self._table.Get(_FLAGS[code], at)) if at else 0

    def text(self, field):
        at = self._at(field)
        return _text(self._table.Bytes, at) if at else ""

    def texts(self, field):
        return [_text(self._table.Bytes, at) for at in self._elements(field)]

    def table(self, field):
        at = self._at(field)
        return self._guard(lambda: Reader(Table(self._table.Bytes, self._table.Indirect(at)))) if at else None

    def tables(self, field):
        data = self._table.Bytes
        return [Reader(Table(data, at + _u32(data, at))) for at in self._elements(field)]

    def column(self, field, code):
        """A vector of numbers as a memoryview of their type."""
        start, count = self._vector(field)
        size = struct.calcsize(code)
        if start + count * size > len(self._table.Bytes):
            raise BadBuffer("a vector ends outside the buffer")
        return memoryview(self._table.Bytes)[start:start + count * size].cast(code)

    def has(self, field):
        return self._at(field) != 0

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


def _text(data, at):
    start = at + _u32(data, at)
    end = start + 4 + _u32(data, start)
    if end > len(data):
        raise BadBuffer("a text ends outside the buffer")
    return bytes(data[start + 4:end]).decode("utf-8", "replace")
