"""Converts digests of traces, which `convtrace origin --digest` writes and `--digests` reads, to and from tables of pyarrow.

The bytes are described in tools/origin/digest/table_codec.h. A column of a pyarrow table has the signed type of the same size
(every engine has those), text, or bytes. A merged table also has a column `held_by`, a list of structs.
"""
import collections
import json
import struct

import numpy
import pyarrow

_MAGIC = b"CTDIGEST"
_NO_TEXT = 0xFFFFFFFF
_WINDOW = 0xFFFFFFFF
_BLOCK_ROWS = 1 << 12

Table = collections.namedtuple("Table", "name row member")  # of row, member: lists of (name, type)


class Damaged(ValueError):
    """The bytes are not a digest."""


def read_head(file):
    """@return (the head's bytes, its tables)."""
    begin = file.read(len(_MAGIC) + 4)
    if len(begin) != len(_MAGIC) + 4 or begin[:len(_MAGIC)] != _MAGIC:
        raise Damaged("no digest")
    text = file.read(struct.unpack_from("<I", begin, len(_MAGIC))[0])
    tables = [Table(one["name"], [tuple(c) for c in one["row"]], [tuple(c) for c in one["member"]])
              for one in json.loads(text)["tables"]]
    return begin + text, tables


def read(file):
    """Reads the digest of one trace.
    @return (the head's bytes, tables, {name of a table: a pyarrow.Table of rows with one member each})"""
    head, tables = read_head(file)
    found = {table.name: [] for table in tables}
    while True:
        begin = file.read(20)
        if not begin:
            break
        number, rows, members, length = struct.unpack("<IIIQ", begin)
        data = file.read(length)
        if len(data) != length or number >= len(tables) or rows != members:
            raise Damaged("a digest is cut short")
        table, at, columns = tables[number], 4 * rows, {}
        for name, kind in table.row + table.member:
            columns[name], at = _column(data, at, rows, kind)
        found[table.name].append(pyarrow.table(columns, schema=schema(table)))
    return head, tables, {table.name: pyarrow.concat_tables(found[table.name]) if found[table.name] else
                          schema(table).empty_table() for table in tables}


def schema(table):
    return pyarrow.schema([(name, _type(kind)) for name, kind in table.row + table.member])


def write_block(file, tables, name, batch):
    """Writes a batch of rows; without a column `held_by` each row has one member."""
    number = next(i for i, table in enumerate(tables) if table.name == name)
    table = tables[number]
    for start in range(0, batch.num_rows, _BLOCK_ROWS):
        part = batch.slice(start, _BLOCK_ROWS)
        rows = members = part.num_rows
        sizes, inner = numpy.ones(rows, "<u4"), part
        if "held_by" in part.schema.names:
            lists = part.column("held_by")
            sizes = numpy.asarray(lists.value_lengths()).astype("<u4")
            inner = pyarrow.RecordBatch.from_struct_array(lists.flatten())
            members = inner.num_rows
        parts = [sizes.tobytes()]
        parts += [piece for column, kind in table.row for piece in _bytes(part.column(column), kind)]
        parts += [piece for column, kind in table.member for piece in _bytes(inner.column(column), kind)]
        file.write(struct.pack("<IIIQ", number, rows, members, sum(map(len, parts))))
        for piece in parts:
            file.write(piece)


def write_window(file, last_step):
    """Writes the end of a window. `last_step`: None for the last window."""
    file.write(struct.pack("<IIIQ", _WINDOW, 0xFFFFFFFF if last_step is None else last_step, 0, 0))


def _type(kind):
    if kind == "text":
        return pyarrow.string()
    if kind.startswith("bytes"):
        return pyarrow.binary()
    return {"f": {32: pyarrow.float32(), 64: pyarrow.float64()}}.get(kind[0], {
        8: pyarrow.int8(), 16: pyarrow.int16(), 32: pyarrow.int32(), 64: pyarrow.int64()})[int(kind[1:])]


def _column(data, at, rows, kind):
    """@return (the column that begins at a byte, the position after it)."""
    if kind == "text":
        lengths = numpy.frombuffer(data, "<u4", rows, at)
        return _texts(data, at + 4 * rows, lengths)
    width = int(kind[5:]) if kind.startswith("bytes") else int(kind[1:]) // 8
    end = at + rows * width
    buffers = [None, pyarrow.py_buffer(data[at:end])]
    if kind.startswith("bytes"):
        buffers.insert(1, pyarrow.py_buffer(numpy.arange(rows + 1, dtype="<i4") * width))
    return pyarrow.Array.from_buffers(_type(kind), rows, buffers), end


def _texts(data, at, lengths):
    none = lengths == _NO_TEXT
    offsets = numpy.zeros(len(lengths) + 1, "<i4")
    numpy.cumsum(numpy.where(none, 0, lengths), out=offsets[1:])
    end = at + int(offsets[-1])
    texts = pyarrow.Array.from_buffers(pyarrow.string(), len(lengths), [
        pyarrow.py_buffer(numpy.packbits(~none, bitorder="little")), pyarrow.py_buffer(offsets), pyarrow.py_buffer(data[at:end])])
    try:
        texts.validate(full=True)
    except pyarrow.ArrowInvalid:  # a trace may hold any bytes, a text of an engine may not
        texts = pyarrow.array([one if one is None else one.decode("utf-8", "replace")
                               for one in texts.view(pyarrow.binary()).to_pylist()], pyarrow.string())
    return texts, end


def _bytes(column, kind):
    """@return the bytes of a column in a block, in pieces."""
    if kind != "text" and not kind.startswith("bytes"):
        return [numpy.asarray(column.cast(_type(kind))).tobytes()]
    known = column.fill_null("" if kind == "text" else b"")
    offsets = numpy.frombuffer(known.buffers()[1], "<i4", len(known) + 1, 4 * known.offset)
    data = known.buffers()[2]
    pieces = [] if data is None else [memoryview(data)[int(offsets[0]):int(offsets[-1])]]
    if kind == "text":
        lengths = numpy.where(numpy.asarray(column.is_null()), _NO_TEXT, numpy.diff(offsets))
        pieces.insert(0, lengths.astype("<u4").tobytes())
    return pieces
