"""Exports a trace as Parquet: one folder per kind, partitioned by rank, as DuckDB, Spark and Ray read them.

One row group of each kind is in memory, of at most 64 Ki rows and about 64 MiB. Integers that fit no 64-bit column are
doubles, with the exact digits in a text column beside them.
"""
import os
import re

import pyarrow
import pyarrow.parquet

from ..events import COUNTS

_ROW_GROUP = 1 << 16
_ROW_GROUP_BYTES = 64 << 20  # what a trace stores in few bytes, a row may repeat in many

_INT, _REAL, _TEXT, _FLAG = pyarrow.int64(), pyarrow.float64(), pyarrow.string(), pyarrow.bool_()
_TEXTS = pyarrow.list_(_TEXT)
_COMMON = [("seq", _INT), ("t_ns", _INT), ("step", _INT), ("thread", _INT)]
_PLACE = [("phase", _TEXT), ("scope", _TEXT), ("call", _INT)]
_VALUE = [("storage", _INT), ("storage_offset", _INT), ("generation", _INT), ("version", _INT)]
_EXACT = ("min", "max", "amax", "amin_nonzero", "sum", "l1")
_OPERAND = pyarrow.struct([("param", _INT), ("word", _INT), ("address", _INT), ("generation", _INT),
                           ("offset", _INT), ("confidence", _TEXT)])
_PADDING = pyarrow.struct([("of", _TEXT), ("index", _INT), ("count", _INT), ("rows", pyarrow.list_(_INT))])

SCHEMAS = {
    "stats": _COMMON + _PLACE + [
        ("slot", _TEXT), ("op", _TEXT), ("kernel", _TEXT), ("device", _TEXT), ("dtype", _TEXT),
        ("shape", pyarrow.list_(_INT)), ("extent", _TEXT), ("capture", _TEXT)] + _VALUE + [
        ("address", _INT), ("bytes", _INT), ("count", _INT), ("hash", _TEXT)] +
        [(name, _INT) for name in COUNTS] + [(name, _REAL) for name in _EXACT] +
        [(name + "_exact", _TEXT) for name in _EXACT] + [
        ("l2", _REAL), ("mean", _REAL), ("std", _REAL), ("samples", pyarrow.list_(_REAL)),
        ("sketch", pyarrow.list_(_REAL)), ("range_hashes", _TEXTS), ("variant", _INT), ("looks", _INT), ("changes", _INT),
        ("padding", _PADDING)],
    "launches": _COMMON + _PLACE + [
        ("kernel", _TEXT), ("family", _TEXT), ("grid", pyarrow.list_(_INT)), ("block", pyarrow.list_(_INT)),
        ("shared_bytes", _INT), ("stream", _INT), ("device", _TEXT), ("sampled", _FLAG), ("why", _TEXT),
        ("operands", pyarrow.list_(_OPERAND))],
    "allocations": _COMMON + [
        ("event", _TEXT), ("address", _INT), ("bytes", _INT), ("generation", _INT), ("source", _TEXT),
        ("stream", _INT), ("device", _TEXT), ("stack", _TEXTS)],
    "findings": _COMMON + _PLACE + [
        ("kind", _TEXT), ("level", _TEXT), ("op", _TEXT), ("kernel", _TEXT), ("slot", _TEXT),
        ("other", _TEXT), ("address", _INT), ("bytes", _INT)] + _VALUE + [
        ("message", _TEXT), ("alloc_stack", _TEXTS), ("launch_stack", _TEXTS), ("free_stack", _TEXTS),
        ("suppressed", _FLAG)],
}
_FOLDERS = {"stats": "stats", "launch": "launches", "alloc": "allocations", "free": "allocations",
            "finding": "findings"}


def is_export(folder):
    """@return whether `folder` is an earlier export, without other files."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        return False
    kinds = "(%s)" % "|".join(SCHEMAS)
    for place, folders, files in os.walk(folder):
        inside = [os.path.relpath(os.path.join(place, name), folder) for name in folders]
        if not all(re.fullmatch(kinds + r"(/rank=\d+)?", path) for path in inside):
            return False
        inside = [os.path.relpath(os.path.join(place, name), folder) for name in files]
        if not all(re.fullmatch(kinds + r"/rank=\d+/[^/]+\.parquet", path) for path in inside):
            return False
    return True


def export(trace, name, folder):
    """Writes `folder`/KIND/rank=R/`name`.parquet for each kind, also for those without events: a query of
    such a kind gives no rows instead of an error."""
    writers = {kind: _Writer(kind, folder, trace.rank, name) for kind in SCHEMAS}
    try:
        for event in trace:
            kind = _FOLDERS.get(event["record"])
            if kind is not None:
                writers[kind].add(_row(event))
    finally:
        for writer in writers.values():
            writer.close()


class _Writer:
    def __init__(self, kind, folder, rank, name):
        self._schema = pyarrow.schema(SCHEMAS[kind])
        place = os.path.join(folder, kind, "rank=%d" % rank)
        os.makedirs(place, exist_ok=True)
        self._file = pyarrow.parquet.ParquetWriter(
            os.path.join(place, name + ".parquet"), self._schema, compression="zstd")
        self._rows, self._bytes = [], 0

    def add(self, row):
        self._rows.append(row)
        self._bytes += sum(_bytes_of(value) for value in row.values())
        if len(self._rows) == _ROW_GROUP or self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self):
        self._flush()
        self._file.close()

    def _flush(self):
        columns = [pyarrow.array([row.get(field.name) for row in self._rows], field.type)
                   for field in self._schema]
        self._file.write_table(pyarrow.table(columns, schema=self._schema))
        self._rows, self._bytes = [], 0


def _bytes_of(value):
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, dict)):
        return 8 + sum(_bytes_of(item) for item in (value.values() if isinstance(value, dict) else value))
    return 8


def _row(event):
    row = {name: _signed(value) for name, value in event.items()}
    if event["record"] in ("alloc", "free"):
        row["event"] = event["record"]
    value = event.get("value")
    if value is not None:
        row.update((name, _signed(value[name])) for name in ("storage", "generation", "version"))
        row["storage_offset"] = _signed(value["offset"])
    for name in _EXACT:
        number = event.get(name)
        if isinstance(number, int):
            row[name], row[name + "_exact"] = float(number), str(number)
    for name in ("samples", "sketch"):
        if event.get(name) is not None:
            row[name] = [float(number) for number in event[name]]
    if event.get("shape"):
        row["shape"] = [_signed(extent) for extent in event["shape"]]
    if "operands" in event:
        row["operands"] = [{name: _signed(number) for name, number in operand.items()}
                           for operand in event["operands"]]
    for name, frames in event.get("stacks", {}).items():
        row[name + "_stack"] = frames
    return row


def _signed(value):
    """64-bit columns are signed, which every reader knows: a handle with the top bit keeps its bits."""
    return value - (1 << 64) if type(value) is int and value >> 63 == 1 else value
