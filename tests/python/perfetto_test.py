"""`convtrace export --format perfetto` on the golden traces, read back as protobuf; by Perfetto's own definitions where the
package `perfetto` is installed."""
import os
import struct
import subprocess
import sys
import tempfile
import unittest

from reader_test import ROOT, TOOL

GOLDEN = os.path.join(ROOT, "tests", "golden", "v1")


def fields(data):
    """(field, value) of each field of a message: numbers, doubles and bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        field, wire = divmod(varint(), 8)
        if wire == 0:
            yield field, varint()
        elif wire == 1:
            yield field, struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            assert wire == 2, wire
            size = varint()
            assert at + size <= len(data)
            yield field, data[at:at + size]
            at += size


class Exported(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "out.perfetto-trace")

    def export(self, *names, expect=0, options=()):
        traces = [os.path.join(GOLDEN, name + ".ctrace") for name in names]
        done = subprocess.run(
            [TOOL, "export", "--format", "perfetto", "-o", self.path, *options, *traces], stderr=subprocess.PIPE,
            env={**os.environ, "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]})
        self.assertEqual(done.returncode, expect, done.stderr)
        with open(self.path, "rb") as file:
            return file.read()


class PerfettoTestCase(Exported):
    def test_every_event_is_on_a_described_track_of_its_process(self):
        tracks, events = {}, []
        for field, packet in fields(self.export("full", "syncs")):
            self.assertEqual(field, 1)
            packet = dict(fields(packet))
            self.assertIn(10, packet)
            if 60 in packet:
                description = dict(fields(packet[60]))
                self.assertIn(description.get(5, description[1]), {*tracks, description[1]})
                tracks[description[1]] = description
            else:
                event = dict(fields(packet[11]))
                self.assertIn(event[11], tracks)  # described before it is used
                events.append((packet[8], event))
        self.assertEqual(sum(3 in track for track in tracks.values()), 2)  # two processes
        names = {track[2].decode() for track in tracks.values()}
        self.assertTrue({"steps", "findings"} <= names, names)
        kinds = {event[9] for _, event in events}
        self.assertEqual(kinds, {1, 2, 3, 4})
        for _, event in events:
            self.assertEqual(event[9] == 4, 44 in event)  # counters have values, nothing else has
            self.assertEqual(event[9] == 4, 8 in tracks[event[11]])
        opened = sum({1: 1, 2: -1}.get(event[9], 0) for _, event in events)
        self.assertGreaterEqual(opened, 0)

    def test_an_unclosed_trace_is_exported_as_far_as_it_goes(self):
        self.assertGreater(len(self.export("unclosed", expect=3)), 100)

    def test_only_an_earlier_export_is_replaced(self):
        first = self.export("full")
        self.export("full", expect=1)
        self.assertEqual(self.export("full", options=["--overwrite"]), first)
        with open(self.path, "wb") as file:
            file.write(b"my own")
        self.assertEqual(self.export("full", options=["--overwrite"], expect=1), b"my own")

    def test_perfettos_own_definitions_read_it(self):
        try:
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        except ImportError:
            self.skipTest("the package perfetto is not installed")
        trace = perfetto_trace_pb2.Trace()
        trace.ParseFromString(self.export("full"))
        findings = [p.track_event for p in trace.packet if p.track_event.name == "freed-under-output"]
        self.assertTrue(findings)
        self.assertEqual({d.name for d in findings[0].debug_annotations} & {"level", "message"}, {"level", "message"})


if __name__ == "__main__":
    unittest.main()
