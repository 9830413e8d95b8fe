"""Triton over the driver double: outputs of its kernels are recorded by the names of their arguments, and tuning is separated
from training. Needs CONVTRACE_BUILD. Triton 3.6 is optional: `pip install --target build/triton triton==3.6.0`, or
CONVTRACE_TRITON names its folder. Without it a stand-in behaves the same as far as triton_double.py uses it."""
import os
import sys
import unittest

import numpy
from preload_test import BUILD, HERE, ProgramTest

DOUBLE = os.path.join(BUILD, "fakecuda")
TRITON = os.environ.get("CONVTRACE_TRITON") or os.path.join(os.path.dirname(BUILD), "triton")
COUNT, STEPS, TRIES = 1024, 4, 6


class TritonTest(ProgramTest):
    folder_of_triton = None

    def traced(self, **settings):
        """@return the output of a traced run, its records, its facts."""
        done = self.run_program("triton_double.py", DOUBLE, LD_LIBRARY_PATH=DOUBLE, PYTHONPATH=self.folder_of_triton,
                                TRITON_CACHE_DIR=os.path.join(self.folder, "cache"), **settings)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        trace, = self.traces()
        records, info = self.records(trace), self.records(trace, "info")
        self.assertEqual(self.records(trace, "findings"), [])
        os.remove(trace)
        return done.stdout, records, info[0]["meta"]["facts"]

    def values_of(self, records):
        """@return {(kernel, slot): records} of the values of kernels."""
        found = {}
        for one in records:
            if one["record"] == "stats" and one["kernel"] is not None:
                found.setdefault((one["kernel"], one["slot"]), []).append(one)
        return found

    def check_values(self, records):
        found = self.values_of(records)
        self.assertEqual(set(found), {("scaled", "arg:out_ptr"), ("add_one", "arg:x_ptr")})
        halves = numpy.arange(COUNT, dtype=numpy.float16).astype(numpy.float32) * numpy.float32(0.5)
        outputs = found["scaled", "arg:out_ptr"]
        self.assertEqual([(one["dtype"], one["count"], one["sum"], one["max"], one["scope"]) for one in outputs],
                         [("f32", COUNT, float(halves.sum(dtype=numpy.float64)), 511.5, "0")] * STEPS)
        sums = {"f32": [], "i32": []}
        for one in found["add_one", "arg:x_ptr"]:
            self.assertEqual(one["count"], COUNT)
            sums[one["dtype"]].append(float(one["sum"]))  # of integers a text
        tried = numpy.arange(COUNT, dtype=numpy.int64).sum() + TRIES * COUNT
        self.assertEqual(sums["i32"], [float(tried + (step + 1) * COUNT) for step in range(STEPS)])
        # In its first step the tries have changed what the kernel works on.
        after = float(halves.sum(dtype=numpy.float64)) + COUNT
        self.assertEqual(sums["f32"], [after + TRIES * COUNT] + [after] * (STEPS - 1))

    def check_tuning(self, records):
        """Launches of tuning have no step."""
        launches = [(one["phase"], one["step"]) for one in records if one["record"] == "launch" and one["kernel"] == "add_one"]
        self.assertEqual(launches.count(("tuning", None)), 2 * TRIES)
        self.assertEqual(len([one for one in launches if one[0] == "forward"]), 2 * STEPS)

    def test_kernels_are_typed_without_a_rule_from_a_cold_and_a_warm_cache(self):
        for _ in "cold", "warm":
            printed, records, facts = self.traced(CONVTRACE_COMPILED="all")
            self.check_values(records)
            self.assertEqual(facts["triton.__main__.scaled"],
                             "x_ptr *fp16, out_ptr *fp32, scale fp32, count i32, stride constexpr, BLOCK constexpr")
            self.assertIn("x_ptr *i32", facts["triton.__main__.add_one"])
            self.assertIn("BLOCK: 256", facts["autotune.__main__.add_one"])
            self.check_tuning(records)
        plain = self.run_program("triton_double.py", DOUBLE, preload=False, python=self.python_with_triton())
        self.assertEqual((plain.returncode, plain.stdout), (0, printed), plain.stderr)

    def python_with_triton(self):
        """@return the path of an interpreter that finds Triton, since run_program passes settings only to traced programs."""
        path = os.path.join(self.folder, "python")
        with open(path, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nPYTHONPATH="%s" exec "%s" "$@"\n' % (self.folder_of_triton, sys.executable))
        os.chmod(path, 0o755)
        return path

    def test_all_kernels_has_the_same_names(self):
        self.check_values(self.traced(CONVTRACE_ALL_KERNELS="1")[1])

    def test_nothing_of_kernels_is_recorded_unasked(self):
        self.assertEqual(self.values_of(self.traced()[1]), {})


class StandIn(TritonTest):
    folder_of_triton = os.path.join(HERE, "programs", "triton_stand_in")


@unittest.skipUnless(os.path.isdir(os.path.join(TRITON, "triton")), "Triton is not in %s" % TRITON)
class Real(TritonTest):
    folder_of_triton = TRITON


del TritonTest, ProgramTest  # they have no programs


if __name__ == "__main__":
    unittest.main()
