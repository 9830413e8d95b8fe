"""`convtrace export --format perfetto` on the golden traces, read back as protobuf; and by Perfetto's own definitions where the
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
    """Yields (field, value) of each field of a message: numbers, doubles and bytes."""
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


class DefinitionsTestCase(Exported):
    """Reads exports by Perfetto's own definitions of its messages. Its trace processor is a program that the package downloads
    at its first use; the processor's requirements on tracks are checked here instead."""

    def setUp(self):
        super().setUp()
        try:
            from google.protobuf import unknown_fields
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        except ImportError:
            self.skipTest("the package perfetto is not installed")
        self.proto, self.unknown_fields = perfetto_trace_pb2, unknown_fields
        self.trace = perfetto_trace_pb2.Trace()
        self.assertEqual(self.trace.ParseFromString(self.export("full", "syncs", "values")), os.path.getsize(self.path))

    def assert_known(self, message):
        self.assertEqual(len(self.unknown_fields.UnknownFieldSet(message)), 0, message)
        for field, value in message.ListFields():
            for part in value if field.is_repeated else [value]:
                if field.message_type:
                    self.assert_known(part)

    def test_they_know_every_field_and_findings_carry_what_is_said_of_them(self):
        self.assert_known(self.trace)
        findings = [p.track_event for p in self.trace.packet if p.track_event.name == "freed-under-output"]
        self.assertTrue(findings)
        self.assertEqual({d.name for d in findings[0].debug_annotations} & {"level", "message"}, {"level", "message"})

    def test_slices_nest_and_counters_count_on_their_tracks(self):
        kinds = self.proto.TrackEvent
        tracks, open_slices, last = {}, {}, {}
        for packet in self.trace.packet:
            self.assertNotEqual(packet.trusted_packet_sequence_id, 0)
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                self.assertNotIn(track.uuid, tracks)  # of several traces, too
                self.assertTrue(track.HasField("process") or track.parent_uuid in tracks)
                tracks[track.uuid] = track
                continue
            event, at = packet.track_event, packet.track_event.track_uuid
            self.assertEqual(event.HasField("double_counter_value"), event.type == kinds.TYPE_COUNTER)
            self.assertEqual(tracks[at].HasField("counter"), event.type == kinds.TYPE_COUNTER)
            if event.type == kinds.TYPE_SLICE_BEGIN:
                self.assertTrue(event.name)
                open_slices[at] = open_slices.get(at, 0) + 1
            elif event.type == kinds.TYPE_SLICE_END:
                self.assertGreater(open_slices.get(at, 0), 0, tracks[at].name)
                open_slices[at] -= 1
            if event.type in (kinds.TYPE_SLICE_BEGIN, kinds.TYPE_SLICE_END):
                self.assertGreaterEqual(packet.timestamp, last.get(at, 0), tracks[at].name)
                last[at] = packet.timestamp
        self.assertTrue(last)


if __name__ == "__main__":
    unittest.main()
