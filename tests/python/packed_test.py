"""Tensors of torch.float4_e2m1fn_x2 and float8_e8m0fnu: what is recorded of them, against numbers that numpy computes from their
bytes. Needs the built libraries and programs (CONVTRACE_BUILD)."""
import os
import sys
import unittest

import numpy

from preload_test import BUILD, SKIPPED, ProgramTest, torch

sys.path.insert(0, os.path.join(BUILD, "share", "convtrace", "python"))
import convtrace  # noqa: E402
from convtrace import hashes  # noqa: E402

if not (hasattr(torch, "float4_e2m1fn_x2") and hasattr(torch, "float8_e8m0fnu")):
    print("skipped: torch %s has no such types" % torch.__version__)
    sys.exit(SKIPPED)

F4_VALUES = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
SPELLINGS = {"float4_e2m1fn_x2": "f4e2m1fn", "float8_e8m0fnu": "f8e8m0fnu"}


def numbers(data, dtype):
    """@return the values of bytes, in logical order."""
    data = data.reshape(-1)
    if dtype == "float4_e2m1fn_x2":
        return F4_VALUES[numpy.stack((data & 15, data >> 4), 1).reshape(-1)]
    return numpy.where(data == 255, numpy.nan, numpy.exp2(data.astype(numpy.float64) - 127))


def expected(x, dtype):
    finite = x[~numpy.isnan(x)]
    four = dtype == "float4_e2m1fn_x2"
    nonzero = numpy.abs(finite[finite != 0])
    some = finite.size > 0
    return {
        "count": x.size, "finite": finite.size, "nan": x.size - finite.size, "pos_inf": 0, "neg_inf": 0,
        "pos_zero": numpy.sum((finite == 0) & ~numpy.signbit(finite)),
        "neg_zero": numpy.sum((finite == 0) & numpy.signbit(finite)),
        "positive": numpy.sum(finite > 0), "negative": numpy.sum(finite < 0),
        "subnormal": numpy.sum(numpy.abs(finite) == 0.5) if four else 0,
        "saturated": numpy.sum(numpy.abs(finite) == (6 if four else 2.0**127)),
        "min": finite.min() if some else None, "max": finite.max() if some else None,
        "amax": numpy.abs(finite).max() if some else None, "amin_nonzero": nonzero.min() if nonzero.size else None}


def listed(value):
    """@return a value as a list, with NaN as in JSON."""
    return ["nan" if x != x else x for x in (value if isinstance(value, list) else [value])]


class Packed(ProgramTest):
    def setUp(self):
        super().setUp()
        kept = os.path.join(self.folder, "kept.npz")
        done = self.run_program("packed.py", kept, CONVTRACE_SAMPLES="12")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.given = dict(numpy.load(kept))
        self.trace, = self.traces()
        self.recorded = {"%s %s" % (r["scope"] or "Quantize", r["slot"]): r for r in self.records(self.trace)
                         if r["record"] == "stats" and r["slot"].startswith("output")}

    def pairs(self):
        self.assertEqual(len(self.given), len(self.recorded))
        for name, data in self.given.items():
            place, dtype = name.rsplit(" ", 1)
            with self.subTest(place):
                yield data, dtype, self.recorded[place]

    def test_counts_and_extremes_are_exact(self):
        for data, dtype, record in self.pairs():
            self.assertEqual((record["dtype"], record["bytes"]), (SPELLINGS[dtype], data.size))
            self.assertEqual(record["shape"], list(data.shape))
            for key, value in expected(numbers(data, dtype), dtype).items():
                self.assertEqual(record[key] if value is not None or record[key] != "nan" else None, value, key)

    def test_sums(self):
        for data, dtype, record in self.pairs():
            x = numbers(data, dtype)
            x = x[~numpy.isnan(x)]
            if x.size == 0:
                continue
            share = 0 if dtype == "float4_e2m1fn_x2" else 1e-7
            l1, l2 = numpy.sum(numpy.abs(x)), numpy.sqrt(numpy.sum(x * x))
            self.assertAlmostEqual(record["sum"], numpy.sum(x), delta=share * l1)
            self.assertAlmostEqual(record["l1"], l1, delta=share * l1)
            self.assertAlmostEqual(record["l2"], l2, delta=share * l2 + 1e-15 * l2)
            self.assertAlmostEqual(record["mean"], numpy.mean(x), delta=(share + 1e-15) * l1 / x.size)
            self.assertAlmostEqual(record["std"], numpy.std(x), delta=(share + 1e-12) * l2)

    def test_samples_are_values_one_by_one(self):
        for data, dtype, record in self.pairs():
            x = numbers(data, dtype)
            places = range(x.size) if x.size <= 16 else [i * x.size // 8 for i in range(8)]
            self.same(record["samples"], x[list(places)])
            if x.size > 16:
                self.same(record["leading"], x[:12 * (2 if dtype == "float4_e2m1fn_x2" else 1)])

    def same(self, found, values):
        numpy.testing.assert_array_equal(numpy.array(found, dtype=numpy.float64), values)

    def test_the_hash_is_of_the_bytes(self):
        for data, _dtype, record in self.pairs():
            self.assertEqual(int(record["hash"], 16), hashes.hash_of(data.tobytes()))

    def test_the_python_reader_says_the_same(self):
        trace = convtrace.Trace(self.trace)
        found = {e["seq"]: e for e in trace if e["record"] == "stats"}
        self.assertEqual(trace.problems, [])
        for record in self.recorded.values():
            event = found[record["seq"]]
            for key in ("dtype", "count", "min", "sum", "samples", "leading", "hash", "shape"):
                self.assertEqual(listed(event[key]), listed(record[key]), key)


if __name__ == "__main__":
    unittest.main()
