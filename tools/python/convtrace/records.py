"""The record layer of a .ctrace file: FORMAT.md sections 2, 3 and 7."""
import collections
import mmap
import os
import struct

from . import codec, limits
from .codec import checksum32

MAGIC = b"\x89CTR\r\n\x1a\n"
SYNC = b"\xe5CTR"
SLOT = 64
META, DEFS, EVENTS, SUMS, BLOB, INDEX, FOOTER = 0x0001, 0x0002, 0x0003, 0x0004, 0x0005, 0x00FE, 0x00FF
CONSOLIDATED = 0x02
HASH_2 = 0x01  # a required feature: hashes of values are of version 2
_MAY_SKIP = 0x4000
_RESERVED_FLAGS = 0xF0
_HEADER = struct.Struct("<4sHBBIIQQQIIIIII")
_FILE_HEADER = struct.Struct("<8sHHI16sQQIIII")
_SEARCHED = 1 << 20  # bytes in which a file with a damaged header must show records

RecordHeader = collections.namedtuple("RecordHeader", (
    "sync kind codec flags stored_size raw_size seq time_begin_ns time_end_ns step_begin step_end "
    "item_count file_tag payload_checksum header_checksum"))


class NotATrace(ValueError):
    """The file is not a trace, or one that this version must not read."""


class BadPayload(ValueError):
    """A record with damaged content."""


class Record(collections.namedtuple("Record", "offset header")):
    @property
    def end(self):
        return self.offset + SLOT + _padded(self.header.stored_size)


class RecordFile:
    """The records of one file, by its index or by scanning.

    `damage`: list of (offset, reason) of the skipped parts. `closed`: a footer ends the file. `live`: another process may
    be writing it, and refresh() reads new records.
    """

    def __init__(self, path, live=False):
        self.path = path
        self._map()
        self.damage = []
        self.closed = False
        self.indexed = False
        self._tag = self._file_tag(path)
        self._at, self._expected = SLOT, 0  # behind the last record of a scan, and its number
        self.records = None if live else self._by_index()
        if self.records is None:
            self.records = []
            self._scan(ended=not live)

    def refresh(self, ended):
        """Adds the new complete records of a live file. `ended`: its writer is gone, so that its end is treated as that of
        any other file."""
        self._map()
        self._scan(ended)

    def payload(self, record):
        """@return the decoded payload of a record. Raises BadPayload."""
        header, start = record.header, record.offset + SLOT
        stored = self._data[start:start + header.stored_size]
        if len(stored) != header.stored_size or checksum32(stored) != header.payload_checksum:
            raise BadPayload("payload checksum")
        if header.codec == 0:
            if header.raw_size != header.stored_size:
                raise BadPayload("sizes of an uncompressed payload differ")
            return stored
        return decompress(stored, header.raw_size)

    def beginning(self, record, size):
        """@return the first bytes of a payload as they are stored, unchecked."""
        start = record.offset + SLOT
        return self._data[start:start + min(size, record.header.stored_size)]

    def _map(self):
        with open(self.path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if self.size < SLOT:
                raise NotATrace("%s is %s" % (self.path, "no trace: it has %d bytes" % self.size if self.size else
                                              "empty: nothing was written to it"))
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _file_tag(self, path):
        self.features = None  # of a damaged file header: META repeats them
        fields = _FILE_HEADER.unpack_from(self._data, 0)
        magic, major, features, tag, checksum = fields[0], fields[1], fields[7], fields[9], fields[10]
        if magic == MAGIC and major != 1:
            raise NotATrace("%s has format version %d; this reader knows version 1" % (path, major))
        if magic == MAGIC and checksum == checksum32(self._data[:60]):
            check_features(path, features)
            self.features = features
            return tag
        tags = collections.Counter()
        offset = SLOT
        while offset < min(_SEARCHED, self.size):
            header = self._header_at(offset)
            if header is not None:
                tags[header.file_tag] += 1
            offset += SLOT + (_padded(header.stored_size) if header else 0)
        if not tags:
            raise NotATrace("%s is no trace" % path)
        self.damage.append((0, "file header"))
        return tags.most_common(1)[0][0]

    def _header_at(self, offset):
        """@return the record header at an offset; None if its checksum differs or its sizes are beyond the limits."""
        raw = self._data[offset:offset + SLOT]
        return _parse(raw) if len(raw) == SLOT and raw[:4] == SYNC else None

    def _by_index(self):
        footer = self._header_at(self.size - SLOT) if self.size % SLOT == 0 else None
        if footer is None or footer.kind != FOOTER or footer.file_tag != self._tag:
            return None
        index_offset, data_end, _, count = struct.unpack_from("<QQQI", self._data, self.size - SLOT + 24)
        if not SLOT <= data_end <= index_offset < self.size or index_offset % SLOT or data_end % SLOT:
            return None
        entries = self._index_entries(index_offset)
        if entries is None or len(entries) != count:
            return None
        offset = SLOT
        for seq, record in enumerate(entries):
            if record.offset != offset or record.header.seq != seq or record.header.file_tag != self._tag:
                return None
            offset = record.end
        if offset != data_end:
            return None
        self.closed = self.indexed = True
        return [r for r in entries if self._is_readable(r)]

    def _index_entries(self, offset):
        entries = []
        while offset < self.size - SLOT:
            header = self._header_at(offset)
            if header is None or header.kind != INDEX or header.file_tag != self._tag:
                return None
            try:
                raw = self.payload(Record(offset, header))
            except BadPayload:
                return None
            if len(raw) != 72 * header.item_count:
                return None
            for at in range(0, len(raw), 72):
                copy = _parse(raw[at + 8:at + 72])
                if copy is None:
                    return None
                entries.append(Record(struct.unpack_from("<Q", raw, at)[0], copy))
            offset = Record(offset, header).end
        return entries if offset == self.size - SLOT else None

    def _scan(self, ended):
        offset, skipped = self._at, 0
        while offset < self.size and not self.closed:
            header = self._header_at(offset)
            if header is None or header.file_tag != self._tag or not 0 <= header.seq - self._expected <= skipped // SLOT:
                following = self._data.find(SYNC, offset + 1)
                step = (following - offset + SLOT - 1) // SLOT * SLOT if following >= 0 else self.size - offset
                skipped += step
                offset += step
                continue
            record = Record(offset, header)
            if not (ended or self._is_written(record)):
                return
            self._account(offset - skipped, offset, header.seq - self._expected)
            if offset + SLOT + header.stored_size > self.size:
                return  # cut off: the tail of a killed process
            if header.kind not in (INDEX, FOOTER) and self._is_readable(record):
                self.records.append(record)
            self.closed = header.kind == FOOTER
            offset, skipped = record.end, 0
            self._at, self._expected = offset, header.seq + 1
        begin = min(offset, self.size) - skipped
        if ended and not self.closed and self.size - begin >= SLOT:
            self._account(begin, self.size, 0)

    def _is_written(self, record):
        """@return whether a record is complete. Some filesystems show a file's new size before its new bytes."""
        if record.end < self.size or record.header.kind == FOOTER:
            return True
        try:
            self.payload(record)
        except BadPayload:
            return False
        return True

    def _account(self, begin, end, lost):
        """Notes bytes without a record as damage, except zeros at the end of the file, which were never written."""
        if end == self.size and not any(self._data[begin:end].strip(b"\0")):
            return
        if end > begin or lost:
            self.damage.append((begin, "%d bytes passed over, %d records lost" % (end - begin, lost)))

    def _is_readable(self, record):
        header = record.header
        if header.flags & _RESERVED_FLAGS or header.codec > 1:
            self.damage.append((record.offset, "a record of a later version"))
            return False
        if header.kind in (META, DEFS, EVENTS, SUMS, BLOB):
            return True
        if not header.kind & _MAY_SKIP:
            self.damage.append((record.offset, "a record of unknown kind 0x%04x" % header.kind))
        return False


def check_features(path, features):
    if features & ~HASH_2:
        raise NotATrace("%s needs features that this reader does not know: bits 0x%x" % (path, features & ~HASH_2))


def decompress(stored, size):
    """@return the content of one zstd frame, which must state and have `size` bytes. Raises BadPayload."""
    try:
        return codec.unzstd(stored, size)
    except ValueError as error:
        raise BadPayload(str(error)) from None


def _parse(raw):
    header = RecordHeader(*_HEADER.unpack(raw))
    if header.sync != SYNC or checksum32(raw[:60]) != header.header_checksum:
        return None
    if header.kind == 0 or max(header.stored_size, header.raw_size) > limits.PAYLOAD_BYTES:
        return None
    return header


def _padded(size):
    return (size + SLOT - 1) // SLOT * SLOT
