"""Reads the values of tensors that are stored in a trace: FORMAT.md section 6.8."""
import struct

from . import limits, records
from .codec import xxh3_64

_HEADER = struct.Struct("<QQQQQIBBBB")  # hash bytes offset checksum base_hash part_bytes width rotate depth reserved
_FRAME = 0x80000000


class NotThere(Exception):
    """The trace lacks a part of the value: its process ended first, or the file is damaged."""


class _Part:
    """The header at the beginning of a BLOB record."""

    def __init__(self, raw):
        if len(raw) < _HEADER.size:
            raise records.BadPayload("a value's part too short for its header")
        (self.hash, self.bytes, self.offset, self.checksum, self.base_hash, self.part_bytes,
         self.width, self.rotate, self.depth, reserved) = _HEADER.unpack_from(raw)
        sound = (self.width in (1, 2, 4, 8) and self.rotate <= 1 and reserved == 0 and
                 self.depth <= limits.BASE_DEPTH and (self.depth > 0 or self.base_hash == 0) and
                 0 < self.part_bytes <= limits.PART_BYTES and self.part_bytes % self.width == 0 and
                 self.offset + self.part_bytes <= self.bytes)
        if not sound:
            raise records.BadPayload("a field of a value's part is outside its limits")


class Values:
    """The stored values, by hash and length. `problems`: (offset, text) of the skipped records."""

    def __init__(self, file):
        self._file = file
        self.problems = []
        self._parts = {}  # (hash, bytes) -> offset -> (part, record)
        for record in file.records:
            if record.header.kind == records.BLOB:
                self._list(record)

    def read(self, hash_, size):
        """Yields the value's bytes, a part at a time. Raises NotThere."""
        offset = 0
        parts = self._parts.get((hash_, size), {})
        while offset < size:
            if offset not in parts:
                raise NotThere("the part at byte %d is not in the trace" % offset)
            raw = self._decode((hash_, size), offset, limits.BASE_DEPTH + 1)
            yield raw
            offset += len(raw)

    def _list(self, record):
        try:
            part = _Part(self._file.beginning(record, _HEADER.size))
        except records.BadPayload as error:
            self.problems.append((record.offset, str(error)))
            return
        parts = self._parts.setdefault((part.hash, part.bytes), {})
        known = parts.get(part.offset)
        # A value may be stored more than once. The copy with the fewest bases is used.
        if known is None or part.depth < known[0].depth:
            parts[part.offset] = part, record

    def _decode(self, content, offset, depth_below):
        """@return the bytes of a part. Its depth must be less than `depth_below`, so that the chain of bases ends."""
        listed, record = self._parts.get(content, {}).get(offset, (None, None))
        if listed is None or listed.depth >= depth_below:
            raise NotThere("the value that it builds on is not in the trace")
        try:
            payload = self._file.payload(record)
            part = _Part(payload)
            base = None
            if part.depth:
                base = self._decode((part.base_hash, part.bytes), offset, part.depth)
                if len(base) != part.part_bytes:
                    raise records.BadPayload("the part that it builds on has another length")
            raw = _join(part, _planes(part, payload), base)
        except records.BadPayload as error:
            raise NotThere(str(error)) from None
        if xxh3_64(raw) != part.checksum:
            raise NotThere("its checksum differs")
        return raw


def _planes(part, payload):
    at = _HEADER.size + 4 * part.width
    if len(payload) < at:
        raise records.BadPayload("a value's part too short for its planes")
    size = part.part_bytes // part.width
    for word in struct.unpack_from("<%dI" % part.width, payload, _HEADER.size):
        stored = payload[at:at + (word & ~_FRAME)]
        if len(stored) != word & ~_FRAME:
            raise records.BadPayload("a plane is cut short")
        plane = records.decompress(stored, size) if word & _FRAME else stored
        if len(plane) != size:
            raise records.BadPayload("a plane of another size")
        yield plane
        at += len(stored)
    if at != len(payload):
        raise records.BadPayload("bytes behind the planes")


def _join(part, planes, base):
    """@return the elements whose bytes the planes hold, the lowest byte first. All elements are handled as one long integer,
    so that a part takes a few operations, however many elements it has."""
    width, size = part.width, part.part_bytes
    joined = bytearray(size)
    for at, plane in enumerate(planes):
        joined[at::width] = plane
    if not part.rotate and base is None:
        return bytes(joined)
    elements = int.from_bytes(joined, "little")
    if part.rotate:  # by one bit to the right, within each element
        lowest = int.from_bytes((b"\1" + bytes(width - 1)) * (size // width), "little")
        ends = elements & lowest
        elements = (elements ^ ends) >> 1 | ends << (8 * width - 1)
    if base is not None:
        elements ^= int.from_bytes(base, "little")
    return elements.to_bytes(size, "little")
