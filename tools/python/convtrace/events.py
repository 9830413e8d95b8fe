"""Decodes EVENTS payloads to one dict per event, with the names and units of `convtrace show --json`: FORMAT.md
section 6. Integers are Python's, so 128-bit sums are exact; numbers that are not finite are floats."""
import functools
import math
import struct

from . import columns, limits
from .elements import decode, is_float, is_signed, part_bytes
from .flat import BadBuffer, Reader

KINDS = ("launch", "stats", "alloc", "free", "copy", "scope", "step", "finding", "diagnostic", "loss", "cost",
         "sync", "op", "fact", "collective")
NO_STEP = 0xFFFFFFFF
# The words of `show --json` for enumerated numbers.
_NAMES = {
    "phase": ("forward", "data", "loss", "backward", "optimizer", "recompute", "communication", "evaluation", "tuning"),
    "why": ("", "no rule asks for it", "launched outside the gate", "stream is capturing",
        "context not prepared yet", "result ring full", "GPU work is off after an error", "no output operand found",
        "the launch failed", "the stream did not produce the block", "recorded into a graph, not run",
        "run by a graph launch", "it may wait for other work"),
    "confidence": ("pointer-base", "pointer-interior", "word-base", "word-interior"),
    "device": ("cpu", "cuda", "other"),
    "dtype": ("unknown", "f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "i8", "u8", "i16", "u16", "i32", "u32",
        "i64", "u64", "bool", "c64", "c128", "f4e2m1fn", "f8e8m0fnu"),
    "extent": ("tensor", "block"),
    "capture": ("hash", "stats", "snapshot"),
    "padding": ("none", "embedding", "labels"),
    "source": ("driver", "stream-ordered", "virtual", "framework", "host", "foreign", "multicast"),
    "finding": ("freed-under-output", "use-after-free", "stale-read", "cross-stream-reuse", "output-aliases-input",
        "input-mutated", "autotune-mutation", "never-written", "alias-pattern-differs",
        "used-before-wait", "receive-overlaps", "overwritten"),
    "level": ("error", "warning", "info", "debug"),
    "reason": ("queue full", "record too large", "write failed", "disk budget reached", "statistics ring full",
        "tensor kind not supported", "stream not safe to use", "process ended first", "GPU work is off after an error",
        "damaged part of the file", "its CUDA context ended first", "kernels of a graph that cannot be seen",
        "no memory for the value, statistics only", "no memory for the value, left out",
        "copies and allocations inside a graph", "collective not read in time", "observer failed, see CT-1301"),
    "sync": ("event-record", "stream-wait", "event-done", "stream-done", "context-done", "event-create",
        "event-destroy", "stream-create", "stream-destroy", "capture-begin", "capture-end"),
    "moment": ("begin", "input", "output", "end", "stack", "storage-death", "in-flight", "awaited"),
    "kind_of_copy": ("copy", "set", "discard"),
}
_RANK_UNKNOWN = 255
_NO_PEER = 0xFFFFFFFF

COUNTS = ("finite", "nan", "pos_inf", "neg_inf", "pos_zero", "neg_zero", "positive", "negative",
          "subnormal", "saturated")
_STATS_ROWS = {name: 20 + i for i, name in enumerate(
    ("storage", "storage_offset", "generation", "version", "address") + COUNTS +
    ("min", "max", "amax", "amin_nonzero", "sum_lo", "sum_hi", "l1_lo", "l1_hi", "l2", "mean", "std"))}
_STATS_ROWS.update(looks=50, changes=51, pad_count=52, poisoned=57, sketch_exponent=58, collective=60, layout=61)
_BUCKETS = 16
_NO_SKETCH = -0x8000


class NotUnderstood(Exception):
    """An event of a later version, or one that refers to an undefined number."""


def _named(what, value):
    if value >= len(_NAMES[what]):
        raise NotUnderstood("an unknown %s" % what)
    return _NAMES[what][value]


class _Kind:
    """A kind of events: its field in the chunk, and the names, widths and meanings of its own fields. They are listed as
    "NAME:BYTES" or "NAME:BYTES:HOW". HOW a value is shown is a key of _NAMES or a case of _shown(). A text has no BYTES."""

    def __init__(self, field, first, fields, varying=""):
        listed = [(name.split(":") + ["", ""])[:3] for name in (fields + " " + varying).split()]
        self.field, self.shown = field, {name: how for name, _, how in listed}
        numbered = {name: (number, int(width or 0)) for number, (name, width, _) in enumerate(listed, first)}
        self.varying = {name.split(":")[0]: numbered[name.split(":")[0]][0] for name in varying.split()}
        self.fixed = {name: at for name, at in numbered.items() if name not in self.varying}

    def event(self, definitions, values):
        """@return the dict of an event from its numbers and texts, as `show --json` prints it."""
        event = {name: _shown(how, definitions, values[name]) for name, how in self.shown.items()}
        if "device_type" in event:
            name, index = event.pop("device_type"), event.pop("device_index")
            event["device"] = name if name == "cpu" else "%s:%d" % (name, index)
        if "storage" in event:
            event["version"] &= 0xFFFFFFFF
            event["value"] = {name.replace("storage_", ""): event.pop(name)
                              for name in ("storage", "storage_offset", "generation", "version")}
        for name in [name for name in event if name.endswith("_stack")]:
            event.setdefault("stacks", {})[name[:-len("_stack")]] = event.pop(name)
        return event


def _shown(how, definitions, value):
    if how in _NAMES:
        return _named(how, value)
    if how in ("text", "stack"):
        return getattr(definitions, how)(value)
    if how == "kernel":
        return definitions.kernel(value)[0]
    if how == "peer":
        return None if value == _NO_PEER else value
    if how == "tag":
        return value - 1 if value else None
    return "cuda:%d" % value if how == "ordinal" else value != 0 if how == "flag" else value


_PLACE = "scope:4:text call:4 phase:1:phase "
_DEVICE = " device_type:1:device device_index:1 "
_VALUE = " storage:8 storage_offset:8 generation:8 version:4 "
_MEMORY = "bytes:8 source:1:source" + _DEVICE + "stream:8 stack:4:stack"
# Kinds that code of their own completes.
_LAUNCH = _Kind(6, 1, _PLACE + "kernel:4:kernel grid_x:4 grid_y:4 grid_z:4 block_x:4 block_y:4 block_z:4 shared_bytes:4 stream:8 "
                "device:1:ordinal sampled:1:why operand_count:2")
_STATS = _Kind(7, 1, _PLACE + "slot:4:text op:4:text kernel:4:kernel" + _DEVICE + "dtype:1:dtype extent:1:extent "
               "capture:1:capture bytes:8 count:8 variant:4 rank:1 range_count:2 sample_bytes:4 leading_bytes:4")
_STATS.fixed.update(padding=(53, 1), pad_index=(54, 8), pad_row_count=(55, 2))
_STATS.shown.update(dict.fromkeys(_STATS_ROWS, ""))
# Columns: `back` is field 0; then those with one row per signature, then those with one row per event.
_ROWS = {
    "alloc": _Kind(8, 1, _MEMORY, "address:8 generation:8"),
    "free": _Kind(9, 1, _MEMORY, "address:8 generation:8"),
    "copy": _Kind(10, 1, "kind:1:kind_of_copy bytes:8 stream:8", "destination:8 source:8"),
    "scope": _Kind(11, 1, _PLACE + "enter:1:flag"),
    "sync": _Kind(18, 1, "kind:1:sync device:1:ordinal stream:8 event:8 flags:4"),
    "op": _Kind(19, 1, _PLACE + "moment:1:moment flags:1 op:4:text slot:4:text" + _DEVICE + "bytes:8 storage_bytes:8 stack:4:stack",
                "address:8" + _VALUE),
    "collective": _Kind(21, 1, _PLACE + "op:4:text group:4:text members:4:text reduction:4:text group_rank:4 group_size:4 "
                        "peer:4:peer dtype:1:dtype" + _DEVICE + "stream:8 sent:8 received:8", "number:8 id:8 tag:8:tag"),
}
# Columns that store the difference to the row before.
_COUNTING = {"alloc": "generation", "free": "generation", "collective": "id"}
# Kinds with one table per event.
_TABLES = {
    "finding": _Kind(13, 0, _PLACE + "kind:1:finding level:1:level suppressed:1:flag op:4:text kernel:4:kernel slot:4:text "
                     "other:4:text address:8 bytes:8" + _VALUE + "alloc_stack:4:stack launch_stack:4:stack free_stack:4:stack message"),
    "diagnostic": _Kind(14, 0, "level:1:level site message"),
    "loss": _Kind(15, 0, "reason:1:reason count:8"),
    "cost": _Kind(16, 0, "host_ns:8 device_ns:8 bytes:8"),
    "fact": _Kind(20, 0, "scope:4:text name:4:text value"),
}


def read_chunk(raw, item_count, definitions, skipped):
    """Yields the events of one payload. `skipped(reason)` is called for each that cannot be decoded.
    Raises BadBuffer before the first event if the payload is damaged."""
    chunk = _Chunk(Reader.root(raw, b"CTEV"), item_count, definitions)
    for header, read in chunk.events():
        try:
            event = read()
            event["record"] = header["record"]
        except NotUnderstood as error:
            skipped(str(error))
            continue
        for name, value in header.items():
            event.setdefault(name, value)
        yield event


class _Chunk:
    def __init__(self, table, item_count, definitions):
        self._table, self._definitions = table, definitions
        kinds = table.column(2, "B")
        if len(kinds) != item_count:
            raise BadBuffer("the record states another number of events")
        if len(kinds) > limits.CHUNK_EVENTS:
            raise BadBuffer("more events than a chunk may have")
        self._kinds = kinds.tolist()
        rows = len(self._kinds)
        self._times, self._steps, self._threads = (
            columns.unpack(table.column(field, "B"), rows, most) for field, most in ((3, 8), (4, 4), (5, 4)))
        count = [self._kinds.count(kind) for kind in range(len(KINDS))]
        self._newest = 0  # generation of the last Alloc so far
        rows = {"launch": self._launches, "stats": self._stats, "step": self._step_marks}
        for kind in _ROWS:
            rows[kind] = functools.partial(self._columns, kind)
        for kind in _TABLES:
            rows[kind] = functools.partial(self._tables, _TABLES[kind])
        self._rows = [rows[kind](count[number]) for number, kind in enumerate(KINDS)]

    def events(self):
        """Yields (common fields, function that returns the others)."""
        seq, t_ns = self._table.number(0, "Q"), self._table.number(1, "Q")
        step = thread = 0
        for row, kind in enumerate(self._kinds):
            t_ns = (t_ns + columns.unzigzag(self._times[row])) & columns.M64
            step = (step + self._steps[row]) & 0xFFFFFFFF
            thread ^= self._threads[row]
            header = {"record": KINDS[kind] if kind < len(KINDS) else None, "seq": (seq + row) & columns.M64, "t_ns": t_ns,
                      "step": None if step == NO_STEP else step, "thread": thread}
            yield header, self._reader_of(kind)

    def _reader_of(self, kind):
        if kind >= len(self._rows):
            def unknown():
                raise NotUnderstood("an event of unknown kind %d" % kind)
            return unknown
        return next(self._rows[kind])

    def _sub_table(self, field, count):
        table = self._table.table(field)
        if table is None and count:
            raise BadBuffer("the columns of %d events are missing" % count)
        return table

    # Each of these unpacks all its columns, then yields for each row a function that makes the event's
    # own fields: a damaged column is found before the first event is returned.

    def _launches(self, count):
        table = self._sub_table(6, count)
        if table is None:
            return iter(())
        like, signatures = columns.like_rows(table, count)
        fixed = columns.unpack_fixed(table, signatures, _LAUNCH.fixed)
        counts = fixed["operand_count"]
        shape_rows = sum(counts)
        pointer_rows = sum(counts[signature] for _, signature in like)
        if max(counts, default=0) > limits.LAUNCH_OPERANDS or pointer_rows > limits.CHUNK_OPERANDS:
            raise BadBuffer("more operands than launches may have")
        shape = list(zip(*(columns.unpack(table.column(field, "B"), shape_rows, most)
                           for field, most in ((16, 2), (17, 2), (18, 1)))))
        pointers = list(zip(*(columns.unpack(table.column(field, "B"), pointer_rows) for field in (19, 20, 21))))
        first_shape = [0]
        for number in counts:
            first_shape.append(first_shape[-1] + number)
        return self._launch_rows(like, fixed, shape, first_shape, pointers)

    def _launch_rows(self, like, fixed, shape, first_shape, stored):
        history, at = [], 0  # per launch: newest generation then, and (address, generation, offset, moved)
        for row, (back, signature) in enumerate(like):
            count = fixed["operand_count"][signature]
            newest_then, before = history[row - back] if back else (0, [(0, 0, 0, False)] * count)
            aged = (self._newest - newest_then) & columns.M64
            operands = []
            for (address, generation, offset, moved), differences in zip(before, stored[at:at + count]):
                expected = (generation + aged) & columns.M64 if moved else generation
                now = [(base + columns.unzigzag(difference)) & columns.M64 for base, difference in
                       zip((address, expected, offset), differences)]
                operands.append((*now, back != 0 and now[1] != generation))
            at += count
            history.append((self._newest, operands))
            values = {name: column[signature] for name, column in fixed.items()}
            shapes = shape[first_shape[signature]:first_shape[signature + 1]]
            yield lambda v=values, o=operands, s=shapes: self._launch(v, o, s)

    def _launch(self, v, operands, shapes):
        event = _LAUNCH.event(self._definitions, v)
        event["family"] = self._definitions.kernel(v["kernel"])[1]
        for name in ("grid", "block"):
            event[name] = [event.pop(name + axis) for axis in ("_x", "_y", "_z")]
        why, event["sampled"] = event["sampled"], v["sampled"] == 0
        if v["sampled"]:
            event["why"] = why
        del event["operand_count"]
        event["operands"] = [
            {"param": param, "word": word, "offset": offset, "address": address, "generation": generation,
             "confidence": _named("confidence", confidence)}
            for (param, word, confidence), (address, generation, offset, _) in zip(shapes, operands)]
        return event

    def _stats(self, count):
        table = self._sub_table(7, count)
        if table is None:
            return iter(())
        rows = columns.RowTable(table, count, _STATS.fixed, _STATS_ROWS)
        ranks = [0 if rank == _RANK_UNKNOWN else rank for rank in rows.fixed["rank"]]
        if max(ranks, default=0) > limits.DIMENSIONS:
            raise BadBuffer("more dimensions than a tensor may have")
        if max(rows.fixed["range_count"], default=0) > limits.RANGE_HASHES:
            raise BadBuffer("more range hashes than a tensor may have")
        if max(rows.fixed["pad_row_count"], default=0) > limits.PAD_ROWS:
            raise BadBuffer("more counts of padding than a tensor may have")
        shapes = columns.unpack(table.column(19, "B"), sum(ranks))
        raw = {"hash": table.column(46, "Q"), "range_hashes": table.column(47, "Q"),
               "samples": table.column(48, "B"), "leading": table.column(49, "B"),
               "pad_rows": table.column(56, "Q")}
        total = {name: sum(rows.fixed[column][signature] for _, signature in rows.like) for name, column in
                 (("range_hashes", "range_count"), ("samples", "sample_bytes"), ("leading", "leading_bytes"),
                  ("pad_rows", "pad_row_count"))}
        if len(raw["hash"]) != count or any(len(raw[name]) != total[name] for name in total):
            raise BadBuffer("a raw column of another length than its rows")
        raw["sketch"] = columns.unpack(table.column(59, "B"), _BUCKETS * sum(
            values["sketch_exponent"] & 0xFFFF != 0 for _, values in rows.rows()), 4)
        first_dim = [0]
        for rank in ranks:
            first_dim.append(first_dim[-1] + rank)
        return self._stats_rows(rows, [shapes[a:b] for a, b in zip(first_dim, first_dim[1:])], raw)

    def _stats_rows(self, rows, shapes, raw):
        ranges = samples = leading = pad_rows = buckets = 0
        for row, (signature, values) in enumerate(rows.rows()):
            v = {**rows.fixed_of(signature), **values, "hash": raw["hash"][row]}
            for name in ("looks", "changes"):
                v[name] &= 0xFFFFFFFF
            v["shape"] = None if v["rank"] == _RANK_UNKNOWN else shapes[signature]
            v["ranges"] = raw["range_hashes"][ranges:ranges + v["range_count"]]
            v["samples"] = raw["samples"][samples:samples + v["sample_bytes"]]
            v["leading"] = raw["leading"][leading:leading + v["leading_bytes"]]
            ranges += v["range_count"]
            samples += v["sample_bytes"]
            leading += v["leading_bytes"]
            v["pad_rows"] = raw["pad_rows"][pad_rows:pad_rows + v["pad_row_count"]]
            pad_rows += v["pad_row_count"]
            v["sketch"] = None
            if v["sketch_exponent"] & 0xFFFF:
                v["sketch"] = _sketch(v["sketch_exponent"], raw["sketch"][buckets:buckets + _BUCKETS])
                buckets += _BUCKETS
            yield lambda v=v: self._stats_event(v)

    def _stats_event(self, v):
        event = _STATS.event(self._definitions, v)
        dtype, capture = event["dtype"], event["capture"]
        event = {name: event[name] for name in (
            "phase", "scope", "call", "slot", "op", "kernel", "device", "dtype", "extent", "capture", "value", "address",
            "bytes", "count")}
        event.update(shape=v["shape"], looks=v["looks"] or None, changes=v["changes"] if v["looks"] else None,
                     padding=_padding(v), hash="0x%016x" % v["hash"])
        for name in ("poisoned", "collective", "layout"):
            if v[name]:
                event[name] = v[name]
        if capture == "hash":
            return event
        event.update((name, v[name]) for name in COUNTS)
        for name in ("min", "max", "amax", "amin_nonzero"):
            event[name] = _scalar(v[name], dtype, name in ("min", "max"))
        for name in ("sum", "l1"):
            event[name] = _wide(v[name + "_lo"], v[name + "_hi"], dtype)
        for name in ("l2", "mean", "std"):
            event[name] = _f64(v[name])
        event["sketch"] = v["sketch"]
        width = part_bytes(dtype)
        for name in ("samples", "leading"):
            event[name] = [decode(dtype, bytes(v[name][at:at + width]))
                           for at in range(0, len(v[name]) - width + 1, width)]
        event["range_hashes"] = ["0x%016x" % one for one in v["ranges"]]
        event["variant"] = v["variant"]
        return event

    def _columns(self, name, count):
        kind = _ROWS[name]
        table = self._sub_table(kind.field, count)
        if table is None:
            return iter(())
        return self._column_rows(name, kind, columns.RowTable(table, count, kind.fixed, kind.varying))

    def _column_rows(self, name, kind, rows):
        counting, count = _COUNTING.get(name), 0
        for signature, values in rows.rows():
            v = {**rows.fixed_of(signature), **values}
            if counting:
                count = v[counting] = (count + v[counting]) & columns.M64
            if name == "alloc":
                self._newest = count
            yield functools.partial(self._op if name == "op" else kind.event, self._definitions, v)

    def _tables(self, kind, count):
        codes = {1: "B", 4: "I", 8: "Q"}
        return iter([functools.partial(kind.event, self._definitions, {
            name: table.number(field, codes[width]) if width else table.short_text(field)
            for name, (field, width) in kind.fixed.items()}) for table in self._table.tables(kind.field, count)])

    @staticmethod
    def _op(definitions, v):
        """@return the dict of an op's event, with only the fields of its moment."""
        event = {**_ROWS["op"].event(definitions, v), **{name: v["flags"] >> bit & 1 != 0 for bit, name in enumerate(
            ("declares_alias", "has_schema", "written", "frees_reported", "borrows"))}}
        tensor = ["value", "slot", "device", "address", "bytes", "storage_bytes", "written", "frees_reported"]
        more = {"input": tensor, "output": tensor + ["borrows"], "end": ["declares_alias", "has_schema"],
                "in-flight": tensor, "awaited": tensor,
                "stack": ["slot"] if event["slot"] else [], "storage-death": ["value"]}.get(event["moment"], [])
        return {name: event[name] for name in ["moment", "phase", "scope", "call", "op", "stack", *more]}

    def _step_marks(self, count):
        index, marks = 0, []
        for difference in columns.unpack(self._table.column(12, "B"), count, 4):
            index = (index + difference) & 0xFFFFFFFF
            marks.append(index)
        return ((lambda i=index: {"step": None if i == NO_STEP else i}) for index in marks)

def _signed(bits):
    return bits - (1 << 64) if bits >> 63 else bits


def _padding(v):
    if v["padding"] == 0:
        return None
    return {"of": _named("padding", v["padding"]), "index": _signed(v["pad_index"]),
            "count": None if v["pad_count"] == columns.M64 else v["pad_count"],
            "rows": list(v["pad_rows"])}


def _f64(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def _sketch(exponent, words):
    exponent = (exponent & 0xFFFF) + _NO_SKETCH
    rotated = struct.pack("<%dI" % _BUCKETS, *((word >> 1) | (word & 1) << 31 for word in words))
    return [_scaled(bucket, exponent) for bucket in struct.unpack("<%df" % _BUCKETS, rotated)]


def _scaled(value, exponent):
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def _scalar(bits, dtype, signed):
    if is_float(dtype):
        return _f64(bits)
    return _signed(bits) if signed and is_signed(dtype) else bits


def _wide(low, high, dtype):
    if is_float(dtype):
        return _f64(low)
    number = low | high << 64
    return number - (1 << 128) if high >> 63 else number
