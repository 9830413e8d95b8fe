"""Exports a trace for the Perfetto viewer: tracks of steps, of modules per thread and of launches per stream, counters of
memory and of every tensor's rms over time, findings as instants. Several ranks are in one file, as one process each.

The format is protobuf; the few messages are written here. Numbers of fields: perfetto_trace.proto, TracePacket,
TrackDescriptor, TrackEvent, DebugAnnotation.
"""
import math
import os
import struct
import zlib

IS_FILE = True

_MARK = b"convtrace"
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4  # TrackEvent.Type


def is_export(path):
    """@return whether `path` is a file that begins like an earlier export."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        beginning = file.read(64)
    return beginning[:1] == b"\x0a" and _MARK in beginning


def export(trace, name, path):
    """Adds the packets of a trace to the file `path`."""
    with open(path, "ab") as file:
        _Writer(file, name).write(trace)


def _varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field, value):
    return _varint(field << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)


def _double(field, value):
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field, value):
    data = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


class _Writer:
    def __init__(self, file, name):
        self._file, self._name = file, name
        # Traces of one file must not share ids.
        self._sequence = zlib.crc32(name.encode("utf-8", "replace")) | 1
        self._tracks = {}
        self._depth, self._live = {}, {}
        self._step = None

    def write(self, trace):
        self._process = self._track("process", "convtrace " + self._name, None)
        takers = {"launch": self._launch, "stats": self._stats, "alloc": self._memory, "free": self._memory,
                  "scope": self._scope, "finding": self._finding}
        last = 0
        for event in trace:
            last = max(last, event["t_ns"])
            self._take_step(event)
            if event["record"] in takers:
                takers[event["record"]](event)
        if self._step is not None:
            self._event(last, self._track("steps", "steps"), _END)

    def _packet(self, payload):
        self._file.write(_bytes(1, payload + _number(10, self._sequence)))

    def _track(self, key, name, parent=0, counter=False):
        """@return uuid of the track, described on first use."""
        if key not in self._tracks:
            uuid = self._tracks[key] = self._sequence << 31 | (len(self._tracks) + 1)
            description = _bytes(2, name) + _number(1, uuid)
            if parent is not None:
                description += _number(5, parent or self._process)
            else:
                description += _bytes(3, _number(1, self._sequence & 0x7FFFFFFF) + _bytes(6, name))
            if counter:
                description += _bytes(8, b"")
            self._packet(_bytes(60, description))
        return self._tracks[key]

    def _event(self, t_ns, track, kind, name=None, value=None, **details):
        event = _number(9, kind) + _number(11, track)
        if name is not None:
            event += _bytes(23, name)
        if value is not None:
            event += _double(44, value)
        for key, detail in details.items():
            if detail not in (None, ""):
                event += _bytes(4, _bytes(10, key) + _bytes(6, str(detail)))
        self._packet(_number(8, t_ns) + _bytes(11, event))

    def _take_step(self, event):
        # Results of GPU work carry the time of their launch: an older step does not come back.
        step = event["step"]
        if step is None or (self._step is not None and step <= self._step):
            return
        track = self._track("steps", "steps")
        if self._step is not None:
            self._event(event["t_ns"], track, _END)
        self._step = step
        self._event(event["t_ns"], track, _BEGIN, "step %d" % step)

    def _launch(self, event):
        track = self._track(("stream", event["stream"]), "stream %d" % event["stream"])
        self._event(event["t_ns"], track, _INSTANT, event["family"] or event["kernel"], module=event["scope"],
                    phase=event["phase"], kernel=event["kernel"])

    def _scope(self, event):
        thread, enter = event["thread"], event["enter"]
        depth = self._depth.get(thread, 0) + (1 if enter else -1)
        if depth < 0:  # entered before the trace began
            return
        self._depth[thread] = depth
        track = self._track(("thread", thread), "modules, thread %d" % thread)
        if enter:
            self._event(event["t_ns"], track, _BEGIN, _call_name(event), phase=event["phase"])
        else:
            self._event(event["t_ns"], track, _END)

    def _stats(self, event):
        if "l2" not in event or not event["count"]:
            return
        place = (event["phase"], event["scope"], event["op"] or event["kernel"], event["call"], event["slot"])
        group = self._track(("values", event["phase"]), "rms, " + event["phase"])
        name = "%s %s" % (event["scope"] or "root module", event["slot"])
        if place[2]:
            name += " [%s]" % place[2]
        if event["call"]:
            name += " call %d" % event["call"]
        track = self._track(place, name, group, counter=True)
        rms = float(event["l2"]) / math.sqrt(event["count"])
        self._event(event["t_ns"], track, _COUNTER, value=rms)
        if event["nan"]:
            self._event(event["t_ns"], self._track("nan", "NaN"), _INSTANT, name, count=event["nan"])

    def _memory(self, event):
        source = event["source"]
        change = event["bytes"] if event["record"] == "alloc" else -event["bytes"]
        # Freed memory may have been allocated before the trace began.
        self._live[source] = max(0, self._live.get(source, 0) + change)
        track = self._track(("memory", source), "live bytes, " + source, counter=True)
        self._event(event["t_ns"], track, _COUNTER, value=float(self._live[source]))

    def _finding(self, event):
        self._event(event["t_ns"], self._track("findings", "findings"), _INSTANT, event["kind"], level=event["level"],
                    module=event["scope"], op=event["op"], slot=event["slot"], message=event["message"])


def _call_name(scope):
    """@return the name of a scope's track event. The root module and a whole backward pass have empty paths."""
    return scope["scope"] or ("backward" if scope["phase"] == "backward" else "root module")
