"""Values of tensors in a trace: the Python reader and `convtrace export --format npy`."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from reader_test import ROOT, TOOL, FolderTest, convtrace

try:
    import numpy
    import convtrace.values
except ImportError as error:
    print("skipped: %s lacks %s" % (sys.executable, error.name))
    sys.exit(77)


def value_bytes(count, seed):
    """@return the bytes of a value, generated in the same way as in tests/golden."""
    made = bytearray()
    for _ in range(count):
        seed = (seed * 1664525 + 1013904223) % 2**32
        made.append(seed >> 24)
    return made


def weights(count):
    made = value_bytes(4 * count, 1)
    for at in range(0, len(made), 4):
        made[at + 2] &= 0x7F
        made[at + 3] = 0x3C
    return made


class Npy(FolderTest):
    """Values of tensors: `convtrace export --format npy`, read by numpy."""
    GOLDEN = os.path.join(ROOT, "tests", "golden", "v1", "values.ctrace")

    def export(self, *arguments, expect, out="out"):
        out = os.path.join(self.folder, out)
        done = subprocess.run(
            [TOOL, "export", "--format", "npy", "-o", out, *arguments],
            env={**os.environ, "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, expect, done.stderr)
        self.assertRegex(done.stdout, r"^$" if expect == 1 else r"^%s: \d+ files?, [\d,]+ bytes\n$" % out)
        if expect == 1:
            return None
        with open(os.path.join(out, "index.jsonl")) as index:
            return {(line["step"], line["slot"]): line for line in map(json.loads, index)}

    def load(self, line, out="out"):
        return numpy.load(os.path.join(self.folder, out, line["file"]), allow_pickle=False)

    def test_a_trace_without_values_leaves_nothing(self):
        plain = os.path.join(os.path.dirname(self.GOLDEN), "tiny.ctrace")
        self.export(plain, expect=1)
        self.assertEqual(os.listdir(self.folder), [])

    def test_every_type_comes_back(self):
        index = self.export(self.GOLDEN, expect=0)
        second = weights(500)
        for at in range(0, len(second), 4):
            second[at] ^= 1
        for step, expected in ((0, weights(500)), (1, second)):
            array = self.load(index[step, "weight"])
            self.assertEqual((array.dtype, array.shape), (numpy.float32, (50, 10)))
            self.assertEqual(array.tobytes(), expected)
        for number, dtype in enumerate(("unknown", "f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "i8", "u8", "i16",
                                        "u16", "i32", "u32", "i64", "u64", "bool", "c64", "c128")):
            with self.subTest(dtype):
                line = index[0, dtype]
                array = self.load(line)
                self.assertEqual((line["dtype"], array.shape), (dtype, (2, 3)))
                expected = value_bytes(array.nbytes, number)
                self.assertEqual(array.tobytes(), bytes(b & 1 for b in expected) if dtype == "bool" else expected)
        self.assertEqual(self.load(index[0, "bf16"]).dtype, numpy.uint16)
        self.assertEqual(self.load(index[0, "f8e4m3fn"]).dtype, numpy.uint8)
        self.assertEqual(self.load(index[0, "empty"]).shape, (0, 4))
        self.assertEqual(self.load(index[1, "scalar"]).shape, ())

    def test_packed_types_come_back_as_bytes(self):
        index = self.export(os.path.join(os.path.dirname(self.GOLDEN), "packed.ctrace"), expect=0)
        for name, shape, seed in ("f4e2m1fn", (16, 16), 18), ("f8e8m0fnu", (2, 3), 19):
            array = self.load(index[0, name])
            self.assertEqual((index[0, name]["dtype"], array.dtype, array.shape), (name, numpy.uint8, shape))
            self.assertEqual(array.tobytes(), value_bytes(array.nbytes, seed))

    def test_events_of_equal_values_share_a_file(self):
        out = os.path.join(self.folder, "both")
        os.mkdir(out)
        for name in "ab":
            shutil.copy(self.GOLDEN, os.path.join(out, name + ".ctrace"))
        index = self.export(out, expect=0)
        self.assertEqual(len({line["file"] for line in index.values()}), len(index))
        names = os.listdir(os.path.join(self.folder, "out"))
        self.assertEqual(len(names), 1 + 2 * len(index))

    def test_a_damaged_value_is_said_and_the_others_are_there(self):
        with open(self.GOLDEN, "rb") as file:
            data = bytearray(file.read())
        whole = self.export(self.GOLDEN, expect=0, out="whole")
        records = convtrace.records.RecordFile(self.GOLDEN).records
        blobs = [record for record in records if record.header.kind == convtrace.records.BLOB]
        data[blobs[0].offset + 64 + 100] ^= 1  # the first part of weight, which step 1 builds on
        index = self.export(self.file(data), expect=3)
        lost = {key for key, line in index.items() if line["file"] is None}
        self.assertEqual(lost, {(0, "weight"), (1, "weight")})
        for key in set(whole) - lost:
            self.assertEqual(self.load(index[key]).tobytes(), self.load(whole[key], "whole").tobytes())

    def test_a_flipped_bit_gives_no_other_bytes(self):
        with open(self.GOLDEN, "rb") as file:
            good = file.read()
        whole = self.values(self.GOLDEN)
        for at in range(64, len(good), 37):
            data = bytearray(good)
            data[at] ^= 1 << at % 8
            for key, value in self.values(self.file(data)).items():
                self.assertIn(value, (None, whole.get(key)), "byte %d" % at)

    def values(self, path):
        trace, found = convtrace.Trace(path), {}
        stored = convtrace.values.Values(trace.file)
        for event in trace:
            if event["record"] == "stats":
                key = event["seq"], event["hash"], event["bytes"]
                try:
                    found[key] = b"".join(stored.read(int(event["hash"], 16), event["bytes"]))
                except convtrace.values.NotThere:
                    found[key] = None
        return found

    def test_only_an_earlier_export_is_replaced(self):
        self.export(self.GOLDEN, expect=0)
        self.export(self.GOLDEN, expect=1)
        self.export("--overwrite", self.GOLDEN, expect=0)
        with open(os.path.join(self.folder, "out", "mine.txt"), "w"):
            pass
        self.export("--overwrite", self.GOLDEN, expect=1)


if __name__ == "__main__":
    unittest.main()
