"""Exports traces of many ranks as Parquet by buckets of steps: KIND/first_step=N/part-M.parquet has the rows of all ranks in the
steps from N up to the next bucket, sorted by `rank`, and within a rank in the order of its trace.

Each trace is first written by parquet.py; then the rows are merged. A bucket has steps of 128 MB, so that files have 64 to
256 MB if a job is large enough; a bucket with a larger step has several parts. A row without a step is in the bucket of the row
before it. One row group of a trace and one of the new file are in memory.
"""
import os
import re
import shutil

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from . import parquet

_RANKS = "ranks"  # a folder beside the tables, until they are complete
_BUCKET_BYTES, _LEAST_BYTES, _MOST_BYTES = 128 << 20, 64 << 20, 192 << 20  # of a part until a row group of 64 MiB exceeds it
_ROW_GROUP, _ROW_GROUP_BYTES = 1 << 16, 64 << 20
_SPREAD = 64  # steps of one row group whose bytes count one by one


def is_export(folder):
    """@return whether `folder` is an earlier export, without other files."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        return False
    kind = "(%s)" % "|".join(parquet.SCHEMAS)
    for place, folders, files in os.walk(folder):
        inside = os.path.relpath(place, folder)
        if not all(re.fullmatch(kind + r"(/first_step=\d+)?", os.path.normpath(os.path.join(inside, name))) for name in folders):
            return False
        if not all(re.fullmatch(kind + r"/first_step=\d+/part-\d+\.parquet", os.path.join(inside, name)) for name in files):
            return False
    return True


def export(trace, name, folder):
    """Adds a trace. The folder is a complete export only after join()."""
    parquet.export(trace, name, os.path.join(folder, _RANKS))


def join(folder):
    """Merges the rows of all ranks."""
    ranks = os.path.join(folder, _RANKS)
    for kind in parquet.SCHEMAS:
        _join_kind(kind, os.path.join(ranks, kind), os.path.join(folder, kind))
    shutil.rmtree(ranks)


def _join_kind(kind, source, target):
    places = [(int(entry.split("=")[1]), os.path.join(source, entry, name))
              for entry in os.listdir(source) for name in os.listdir(os.path.join(source, entry))]
    files = [_RankFile(rank, path) for rank, path in sorted(places)]
    schema = pyarrow.schema([("rank", pyarrow.int64()), *parquet.SCHEMAS[kind]])
    starts = _buckets([group for file in files for group in file.groups])
    for first, end in zip(starts, [*starts[1:], None]):
        writer = _Parts(os.path.join(target, "first_step=%d" % first), schema)
        try:
            for file in files:
                for rows in file.rows(None if first == starts[0] else first, end):
                    writer.add(rows)
        finally:
            writer.close()


def _buckets(groups):
    """@param groups  (first step, last step, bytes) of row groups
    @return the first steps of the buckets"""
    sizes = {}
    for first, last, size in groups:
        steps = min(last - first + 1, _SPREAD)
        for step in range(first, first + steps):
            sizes[step] = sizes.get(step, 0) + size / steps
    starts, filled = [min(sizes, default=0)], 0
    for step in sorted(sizes):
        if filled >= _BUCKET_BYTES:
            starts.append(step)
            filled = 0
        filled += sizes[step]
    if len(starts) > 1 and filled < _LEAST_BYTES:
        starts.pop()
    return starts


class _RankFile:
    """The file of parquet.py for one kind and trace. `groups`: (first step, last step, bytes) of each row group."""

    def __init__(self, rank, path):
        self._rank, self._path = rank, path
        self.groups, self._carried = [], []
        metadata = pyarrow.parquet.read_metadata(path)
        column = metadata.schema.names.index("step") if metadata.num_row_groups else None
        last = 0  # a row without a step has that of the row before
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            known = group.column(column).statistics
            known = known if known is not None and known.has_min_max else None
            first = min(last, known.min) if known and known.null_count else known.min if known else last
            self._carried.append(last)
            last = max(last, known.max if known else last)
            size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            self.groups.append((first, last, size))

    def rows(self, first, end):
        """Yields tables of the rows from step `first` until before step `end`; None: no limit."""
        for number, (low, high, _) in enumerate(self.groups):
            if (first is not None and high < first) or (end is not None and low >= end):
                continue
            table = pyarrow.parquet.ParquetFile(self._path).read_row_group(number)
            steps = pyarrow.concat_arrays([pyarrow.array([self._carried[number]], pyarrow.int64()),
                                           *table.column("step").chunks])
            steps = pyarrow.compute.fill_null_forward(steps).slice(1)
            inside = pyarrow.compute.is_valid(steps)
            if first is not None:
                inside = pyarrow.compute.and_(inside, pyarrow.compute.greater_equal(steps, first))
            if end is not None:
                inside = pyarrow.compute.and_(inside, pyarrow.compute.less(steps, end))
            table = table.filter(inside)
            if len(table):
                ranks = pyarrow.array([self._rank] * len(table), pyarrow.int64())
                yield table.add_column(0, pyarrow.field("rank", pyarrow.int64()), ranks)


class _Parts:
    """The files of a bucket. The first one exists even if it is empty."""

    def __init__(self, folder, schema):
        os.makedirs(folder)
        self._folder, self._schema, self._number = folder, schema, 0
        self._waiting, self._rows, self._bytes = [], 0, 0
        self._open()

    def add(self, table):
        self._waiting.append(table)
        self._rows += len(table)
        self._bytes += table.nbytes
        if self._rows >= _ROW_GROUP or self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self):
        self._flush()
        self._writer.close()
        self._file.close()

    def _open(self):
        self._file = open(os.path.join(self._folder, "part-%d.parquet" % self._number), "wb")
        self._writer = pyarrow.parquet.ParquetWriter(self._file, self._schema, compression="zstd",
                                                     sorting_columns=[pyarrow.parquet.SortingColumn(0)])
        self._number += 1

    def _flush(self):
        if not self._waiting:
            return
        if self._file.tell() >= _MOST_BYTES:
            self._writer.close()
            self._file.close()
            self._open()
        self._writer.write_table(pyarrow.concat_tables(self._waiting).cast(self._schema), row_group_size=_ROW_GROUP)
        self._waiting, self._rows, self._bytes = [], 0, 0
