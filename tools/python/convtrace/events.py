"""EVENTS payloads to one dict an event, with the names and units of `convtrace show --json`: FORMAT.md
section 6. Integers are Python's, so 128-bit sums are exact; numbers that are not finite are floats."""
import math
import struct

from . import columns, limits
from .elements import decode, is_float, is_signed, part_bytes
from .flat import BadBuffer, Reader

KINDS = ("launch", "stats", "alloc", "free", "copy", "scope", "step", "finding", "diagnostic", "loss", "cost",
         "sync", "op", "fact")
NO_STEP = 0xFFFFFFFF
_PHASES = ("forward", "data", "loss", "backward", "optimizer", "recompute", "communication",
           "evaluation")
_WHY = ("", "no rule asks for it", "launched outside the gate", "stream is capturing",
        "context not prepared yet", "result ring full", "GPU work is off after an error",
        "no output operand found", "the launch failed", "the stream did not produce the block",
        "recorded into a graph, not run", "run by a graph launch")
_CONFIDENCES = ("pointer-base", "pointer-interior", "word-base", "word-interior")
_DEVICES = ("cpu", "cuda", "other")
_DTYPES = ("unknown", "f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "i8", "u8", "i16", "u16", "i32",
           "u32", "i64", "u64", "bool", "c64", "c128")
_EXTENTS = ("tensor", "block")
_CAPTURES = ("hash", "stats", "snapshot")
_PADDINGS = ("none", "embedding", "labels")
_SOURCES = ("driver", "stream-ordered", "virtual", "framework", "host", "foreign",
            "multicast")
_FINDINGS = ("freed-under-output", "use-after-free", "stale-read", "cross-stream-reuse",
             "output-aliases-input", "input-mutated", "autotune-mutation", "never-written",
             "alias-pattern-differs")
_LEVELS = ("error", "warning", "info", "debug")
_REASONS = ("queue full", "record too large", "write failed", "disk budget reached",
            "statistics ring full", "tensor kind not supported", "stream not safe to use",
            "process ended first", "GPU work is off after an error", "damaged part of the file",
            "its CUDA context ended first", "kernels of a graph that cannot be seen",
            "no memory for the value, statistics only", "no memory for the value, left out",
            "copies and allocations inside a graph")
_SYNCS = ("event-record", "stream-wait", "event-done", "stream-done", "context-done", "event-create",
          "event-destroy", "stream-create", "stream-destroy", "capture-begin", "capture-end")
_MOMENTS = ("begin", "input", "output", "end", "stack", "storage-death")
_RANK_UNKNOWN = 255

def _fixed(**widths):
    """Fixed columns of a table: their fields follow `back`, in order."""
    return {name: (field, width) for field, (name, width) in enumerate(widths.items(), 1)}


_LAUNCH = _fixed(scope=4, call=4, phase=1, kernel=4, grid_x=4, grid_y=4, grid_z=4, block_x=4, block_y=4,
                 block_z=4, shared_bytes=4, stream=8, device=1, sampled=1, operand_count=2)
_STATS = _fixed(scope=4, call=4, phase=1, slot=4, op=4, kernel=4, device_type=1, device_index=1, dtype=1,
                extent=1, capture=1, bytes=8, count=8, variant=4, rank=1, range_count=2, sample_bytes=4,
                leading_bytes=4)
_STATS.update(padding=(53, 1), pad_index=(54, 8), pad_row_count=(55, 2))
_COUNTS = ("finite", "nan", "pos_inf", "neg_inf", "pos_zero", "neg_zero", "positive", "negative",
           "subnormal", "saturated")
_STATS_ROWS = {name: 20 + i for i, name in enumerate(
    ("storage", "offset", "generation", "version", "address") + _COUNTS +
    ("min", "max", "amax", "amin_nonzero", "sum_lo", "sum_hi", "l1_lo", "l1_hi", "l2", "mean", "std"))}
_STATS_ROWS.update(looks=50, changes=51, pad_count=52, poisoned=57, sketch_exponent=58)
_BUCKETS = 16
_NO_SKETCH = -0x8000
_MEMORY = _fixed(bytes=8, source=1, device_type=1, device_index=1, stream=8, stack=4)
_COPY = _fixed(kind=1, bytes=8, stream=8)
_SCOPE = _fixed(scope=4, call=4, phase=1, enter=1)
_SYNC = _fixed(kind=1, device=1, stream=8, event=8, flags=4)
_OP = _fixed(scope=4, call=4, phase=1, moment=1, flags=1, op=4, slot=4, device_type=1, device_index=1, bytes=8,
             storage_bytes=8, stack=4)


class NotUnderstood(Exception):
    """An event of a later version, or one that names what is not defined."""


def read_chunk(raw, item_count, definitions, skipped):
    """Yields the events of one payload. `skipped(reason)` is called for each that cannot be shown.
    Raises BadBuffer before the first event if the payload is not to be trusted."""
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


def _named(names, value, what):
    if value >= len(names):
        raise NotUnderstood("an unknown %s" % what)
    return names[value]


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
        self._rows = {
            0: self._launches(count[0]), 1: self._stats(count[1]),
            2: self._memory(8, count[2], True), 3: self._memory(9, count[3], False),
            4: self._copies(count[4]), 5: self._scopes(count[5]), 6: self._step_marks(count[6]),
            7: self._tables(13, count[7], self._finding, (19,)),
            8: self._tables(14, count[8], self._diagnostic, (1, 2)),
            9: self._tables(15, count[9], self._loss), 10: self._tables(16, count[10], self._cost),
            11: self._syncs(count[11]), 12: self._ops(count[12]),
            13: self._tables(20, count[13], self._fact, (2,))}

    def events(self):
        """Yields (common fields, function that gives the others)."""
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
        if kind not in self._rows:
            def unknown():
                raise NotUnderstood("an event of unknown kind %d" % kind)
            return unknown
        return next(self._rows[kind])

    def _sub_table(self, field, count):
        table = self._table.table(field)
        if table is None and count:
            raise BadBuffer("the columns of %d events are missing" % count)
        return table

    # Each of these unpacks all its columns, then gives row by row a function that makes the event's
    # own fields: a column that is damaged is found before the first event is given out.

    def _launches(self, count):
        table = self._sub_table(6, count)
        if table is None:
            return iter(())
        like, signatures = columns.like_rows(table, count)
        fixed = columns.unpack_fixed(table, signatures, _LAUNCH)
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
        kernel, family = self._definitions.kernel(v["kernel"])
        event = {**self._place(v), "kernel": kernel, "family": family,
                 "grid": [v["grid_x"], v["grid_y"], v["grid_z"]],
                 "block": [v["block_x"], v["block_y"], v["block_z"]],
                 "shared_bytes": v["shared_bytes"], "stream": v["stream"], "device": "cuda:%d" % v["device"],
                 "sampled": v["sampled"] == 0}
        if v["sampled"]:
            event["why"] = _named(_WHY, v["sampled"], "reason")
        event["operands"] = [
            {"param": param, "word": word, "offset": offset, "address": address, "generation": generation,
             "confidence": _named(_CONFIDENCES, confidence, "confidence")}
            for (param, word, confidence), (address, generation, offset, _) in zip(shapes, operands)]
        return event

    def _stats(self, count):
        table = self._sub_table(7, count)
        if table is None:
            return iter(())
        rows = columns.RowTable(table, count, _STATS, _STATS_ROWS)
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
            for name in ("version", "looks", "changes"):
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
        dtype = _named(_DTYPES, v["dtype"], "dtype")
        capture = _named(_CAPTURES, v["capture"], "capture")
        event = {**self._place(v), "slot": self._definitions.text(v["slot"]),
                 "op": self._definitions.text(v["op"]), "kernel": self._definitions.kernel(v["kernel"])[0],
                 "device": _device(v), "dtype": dtype, "shape": v["shape"],
                 "extent": _named(_EXTENTS, v["extent"], "extent"), "capture": capture, "value": _value(v),
                 "address": v["address"], "bytes": v["bytes"], "count": v["count"],
                 "looks": v["looks"] or None, "changes": v["changes"] if v["looks"] else None,
                 "padding": _padding(v), "hash": "0x%016x" % v["hash"]}
        if v["poisoned"]:
            event["poisoned"] = v["poisoned"]
        if capture == "hash":
            return event
        event.update((name, v[name]) for name in _COUNTS)
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

    def _memory(self, field, count, is_alloc):
        table = self._sub_table(field, count)
        if table is None:
            return iter(())
        rows = columns.RowTable(table, count, _MEMORY, dict(address=7, generation=8))
        return self._memory_rows(rows, is_alloc)

    def _memory_rows(self, rows, is_alloc):
        generation = 0
        for signature, values in rows.rows():
            generation = (generation + values["generation"]) & columns.M64
            if is_alloc:
                self._newest = generation
            v = {**rows.fixed_of(signature), "address": values["address"], "generation": generation}
            yield lambda v=v: {
                "address": v["address"], "bytes": v["bytes"], "generation": v["generation"],
                "source": _named(_SOURCES, v["source"], "source"), "stream": v["stream"],
                "device": _device(v), "stack": self._definitions.stack(v["stack"])}

    def _copies(self, count):
        table = self._sub_table(10, count)
        if table is None:
            return iter(())
        rows = columns.RowTable(table, count, _COPY, dict(destination=4, source=5))
        return ((lambda v={**rows.fixed_of(signature), **values}: {
            **v, "kind": _named(("copy", "set", "discard"), v["kind"], "kind of copy")}) for signature, values in rows.rows())

    def _scopes(self, count):
        table = self._sub_table(11, count)
        if table is None:
            return iter(())
        rows = columns.RowTable(table, count, _SCOPE, {})
        return ((lambda v=rows.fixed_of(signature): {**self._place(v), "enter": v["enter"] != 0})
                for signature, _ in rows.rows())

    def _syncs(self, count):
        table = self._sub_table(18, count)
        if table is None:
            return iter(())
        rows = columns.RowTable(table, count, _SYNC, {})
        return ((lambda v=rows.fixed_of(signature): {
            **v, "kind": _named(_SYNCS, v["kind"], "kind of synchronisation"),
            "device": "cuda:%d" % v["device"]}) for signature, _ in rows.rows())

    def _ops(self, count):
        table = self._sub_table(19, count)
        if table is None:
            return iter(())
        rows = columns.RowTable(table, count, _OP, dict(address=13, storage=14, offset=15, generation=16, version=17))
        return ((lambda v={**rows.fixed_of(signature), **values}: self._op(v)) for signature, values in rows.rows())

    def _op(self, v):
        moment = _named(_MOMENTS, v["moment"], "moment of an op")
        text = self._definitions.text
        event = {"moment": moment, **self._place(v), "op": text(v["op"]), "stack": self._definitions.stack(v["stack"])}
        slot, device = text(v["slot"]), _device(v)
        if moment in ("input", "output"):
            event.update(slot=slot, device=device, address=v["address"], bytes=v["bytes"],
                         storage_bytes=v["storage_bytes"], written=bool(v["flags"] & 4),
                         frees_reported=bool(v["flags"] & 8))
            if moment == "output":
                event["borrows"] = bool(v["flags"] & 16)
        elif moment == "end":
            event.update(declares_alias=bool(v["flags"] & 1), has_schema=bool(v["flags"] & 2))
        elif moment == "stack" and slot:
            event["slot"] = slot
        if moment in ("input", "output", "storage-death"):
            event["value"] = _value({**v, "version": v["version"] & 0xFFFFFFFF})
        return event

    def _step_marks(self, count):
        index, marks = 0, []
        for difference in columns.unpack(self._table.column(12, "B"), count, 4):
            index = (index + difference) & 0xFFFFFFFF
            marks.append(index)
        return ((lambda i=index: {"step": None if i == NO_STEP else i}) for index in marks)

    def _tables(self, field, count, read, texts=()):
        tables = [(table, [table.short_text(text) for text in texts]) for table in self._table.tables(field, count)]
        return ((lambda t=table, texts=texts: read(t, *texts)) for table, texts in tables)

    def _finding(self, t, message):
        text, stack = self._definitions.text, self._definitions.stack
        place = {"scope": t.number(0), "call": t.number(1), "phase": t.number(2, "B")}
        value = {"storage": t.number(12, "Q"), "offset": t.number(13, "Q"), "generation": t.number(14, "Q"),
                 "version": t.number(15)}
        return {"kind": _named(_FINDINGS, t.number(3, "B"), "kind of finding"),
                "level": _named(_LEVELS, t.number(4, "B"), "level"), **self._place(place),
                "op": text(t.number(6)), "kernel": self._definitions.kernel(t.number(7))[0],
                "slot": text(t.number(8)), "other": text(t.number(9)), "address": t.number(10, "Q"),
                "bytes": t.number(11, "Q"), "value": _value(value), "message": message,
                "stacks": {"alloc": stack(t.number(16)), "launch": stack(t.number(17)),
                           "free": stack(t.number(18))},
                "suppressed": bool(t.number(5, "?"))}

    def _diagnostic(self, t, site, message):
        return {"level": _named(_LEVELS, t.number(0, "B"), "level"), "site": site, "message": message}

    def _loss(self, t):
        return {"reason": _named(_REASONS, t.number(0, "B"), "reason"), "count": t.number(1, "Q")}

    def _cost(self, t):
        return {"host_ns": t.number(0, "Q"), "device_ns": t.number(1, "Q"), "bytes": t.number(2, "Q")}

    def _fact(self, t, value):
        text = self._definitions.text
        return {"scope": text(t.number(0)), "name": text(t.number(1)), "value": value}

    def _place(self, v):
        return {"phase": _named(_PHASES, v["phase"], "phase"), "scope": self._definitions.text(v["scope"]),
                "call": v["call"]}


def _device(v):
    kind = _named(_DEVICES, v["device_type"], "device")
    return kind if kind == "cpu" else "%s:%d" % (kind, v["device_index"])


def _value(v):
    return {name: v[name] for name in ("storage", "offset", "generation", "version")}


def _signed(bits):
    return bits - (1 << 64) if bits >> 63 else bits


def _padding(v):
    if v["padding"] == 0:
        return None
    return {"of": _named(_PADDINGS, v["padding"], "padding"), "index": _signed(v["pad_index"]),
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
