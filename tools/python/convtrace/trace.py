"""Reads a trace: its metadata, definitions and events."""
import collections
import math

from . import events, limits, records
from .flat import BadBuffer, Reader

Problem = collections.namedtuple("Problem", "offset text")


class Definitions:
    """Texts, kernels and stacks by their numbers: FORMAT.md section 5."""

    def __init__(self):
        self._texts, self._kernels, self._stacks = {}, {}, {}

    def add(self, raw):
        table = Reader.root(raw, b"CTDF")
        for number, text in zip(_ids(table.number(0), table.count(1)), table.texts(1)):
            self._texts[number] = text
        names, families = table.column(3, "I"), table.column(4, "I")
        if len(names) != len(families):
            raise BadBuffer("kernel columns of different lengths")
        for number, pair in zip(_ids(table.number(2), len(names)), zip(names, families)):
            self._kernels[number] = pair
        frame_counts, frames, at = table.column(6, "H"), table.column(7, "I"), 0
        for number, count in zip(_ids(table.number(5), len(frame_counts)), frame_counts):
            if count > limits.STACK_FRAMES:
                raise BadBuffer("a stack of more frames than one may have")
            self._stacks[number] = frames[at:at + count].tolist()
            at += count
        if at != len(frames):
            raise BadBuffer("frames without a stack")

    def text(self, number):
        return None if number == 0 else self._find(self._texts, number, "text")

    def kernel(self, number):
        """@return (mangled name, family) of a kernel, each None if it has none."""
        if number == 0:
            return None, None
        name, family = self._find(self._kernels, number, "kernel")
        return self.text(name), self.text(family)

    def stack(self, number):
        return [self.text(frame) for frame in self._find(self._stacks, number, "stack")] if number else []

    @staticmethod
    def _find(table, number, what):
        if number not in table:
            raise events.NotUnderstood("it names an undefined %s" % what)
        return table[number]


def _ids(first, count):
    if first + count - 1 > limits.DEFINITIONS:
        raise BadBuffer("more definitions than a trace may have")
    return range(first, first + count)


class Trace:
    """One .ctrace file. Iterating gives its events as dicts, in the order of their `seq`; the file is
    read as far as the iteration goes, and each iteration begins anew.

    `meta`: dict with facts of the process. `first_step`, `end_step`: an iteration gives only the events of steps
    from `first_step` until before `end_step`. `problems`: the parts skipped so far, complete after an
    iteration. `file`: its records. `state`: complete, unclosed or damaged, as far as the file was read.
    Raises records.NotATrace, OSError.
    """

    def __init__(self, path, live=False):
        self.file = records.RecordFile(path, live)
        self._found = [Problem(*one) for one in self.file.damage]
        self.problems = list(self._found)
        self.first_step, self.end_step = 0, math.inf
        self.meta = self._read_meta()

    @property
    def rank(self):
        return self.meta.get("rank", 0)

    @property
    def state(self):
        if self.problems:
            return "damaged"
        return "complete" if self.file.closed else "unclosed"

    def __iter__(self):
        self.problems = list(self._found)
        definitions = Definitions()
        for record in self._of_kind(records.DEFS, lambda r: self._defines(r) and self.file.indexed):
            self._try(record, lambda raw: definitions.add(raw))
        for record in self.file.records:
            yield from self._events_in(record, definitions)

    def frame(self, kind):
        """@return the events of one kind as a pandas.DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("frame() needs pandas: pip install 'convtrace[pandas]', or pip install pandas") from error

        return pandas.DataFrame.from_records([event for event in self if event["record"] == kind])

    def _defines(self, record):
        """@return whether a record's definitions are used: with an index the repeated ones, else the original ones."""
        return bool(record.header.flags & records.CONSOLIDATED) == self.file.indexed

    def _of_kind(self, kind, wanted=lambda record: True):
        return [r for r in self.file.records if r.header.kind == kind and wanted(r)]

    def _events_in(self, record, definitions):
        """Yields the events of a record. Without an index a record of definitions adds these."""
        if record.header.kind == records.EVENTS:
            yield from self._events_of(record, definitions)
        elif record.header.kind == records.DEFS and not self.file.indexed and self._defines(record):
            self._try(record, lambda raw: definitions.add(raw))

    def _events_of(self, record, definitions):
        try:
            raw = self.file.payload(record)
            for event in events.read_chunk(raw, record.header.item_count, definitions,
                                           lambda why: self._problem(record, "an event is not shown: " + why)):
                if self.first_step <= (event["step"] or 0) < self.end_step:
                    event["rank"] = self.rank
                    yield event
        except (records.BadPayload, BadBuffer) as error:
            self._problem(record, "%d events are lost: %s" % (record.header.item_count, error))

    def _try(self, record, use):
        try:
            use(self.file.payload(record))
        except (records.BadPayload, BadBuffer) as error:
            self._problem(record, str(error))

    def _problem(self, record, text):
        self.problems.append(Problem(record.offset, text))

    def _read_meta(self):
        meta, facts = {}, {}
        for record in self._of_kind(records.META):
            self._try(record, lambda raw: self._add_meta(Reader.root(raw, b"CTMD"), meta, facts))
        self._found = list(self.problems)
        stated = meta.pop("required_features", 0)
        features = stated if self.file.features is None else self.file.features
        records.check_features(self.file.path, features)
        meta["hash_version"] = 2 if features & records.HASH_2 else 1
        meta["facts"] = facts
        return meta

    @staticmethod
    def _add_meta(table, meta, facts):
        meta.update(
            uuid=bytes(table.column(0, "B")).hex(), start_realtime_ns=table.number(1, "Q"),
            start_monotonic_ns=table.number(2, "Q"),
            required_features=table.number(3), tool_version=table.text(4), host=table.text(5),
            pid=table.number(6), rank=table.number(7), world_size=table.number(8),
            command_line=table.texts(9))
        facts.update(zip(table.texts(10), table.texts(11)))
