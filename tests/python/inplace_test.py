"""Ops that write memory which somebody still needs are told from one run, at the op that wrote; ops that only look alike
are not. Needs the built libraries and programs (CONVTRACE_BUILD)."""
import collections
import os
import re
import subprocess
import unittest

from host_test import HostTest
from preload_test import SHOW

# Case of programs/inplace/kept.py -> (level, kind, op, slot) of one of its findings: the one that says where.
TOLD = {
    "wrong_saved_of_tanh": ("error", "input-mutated", "SquareBackward", "saved:0"),
    "wrong_saved_of_product": ("error", "input-mutated", "SquareBackward", "saved:0"),
    "wrong_saved_of_exp": ("error", "overwritten", "SquareBackward", "saved_shared:0"),
    "wrong_gradient_counted": ("error", "input-mutated", "TenthBackward", "grad_output:0"),
    "wrong_gradient_raw": ("error", "input-mutated", "TenthBackward", "grad_output:0"),
    "wrong_gradient_alone": ("warning", "input-mutated", "TenthBackward", "grad_output:0"),
    "wrong_buffer_saved": ("error", "overwritten", "GateBackward", "saved:1"),
    "wrong_buffer_of_ctx": ("warning", "overwritten", "GateBackward", "ctx:gate"),
    "wrong_input_written": ("warning", "input-mutated", "Centre", "input:0"),
    "wrong_library_gradient": ("error", "input-mutated", "inplace_tests::squareBackward", "saved:0"),
    "wrong_between_modules": ("error", "overwritten", None, "input:0"),
    "wrong_weight_between": ("error", "overwritten", "WeightedBackward", "saved:1"),
    "wrong_batch_refilled": ("error", "overwritten", "WeightedBackward", "saved:0"),
    "wrong_second_backward": ("error", "overwritten", "SquareBackward", "grad_input:0"),
}


class Kept(HostTest):
    def test_who_writes_what_is_needed_is_told_and_nobody_else(self):
        done = self.run_in("kept", os.path.join(os.pardir, "inplace", "kept.py"), preload=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        ends = dict(re.findall(r"^(\w+) (-?\d+)$", done.stdout, re.M))
        self.assertEqual(set(ends.values()), {"0"}, done.stdout + done.stderr)
        self.assertEqual(set(ends), {"right", *TOLD})
        found = collections.defaultdict(set)
        for trace in self.traces():
            name = os.path.basename(trace)[:-len(".ctrace")]
            is_error = TOLD.get(name, ("",))[0] == "error"
            for one in self.records(trace, "findings", expect=4 if is_error else 0):
                found[name].add((one["level"], one["kind"], one["op"], one["slot"]))
        self.assertEqual(found["right"], set())
        for name, expected in TOLD.items():
            self.assertIn(expected, found[name], name)
            self.assertIn({level for level, *_ in found[name]}, ({expected[0]}, {"error", "warning"}), name)
        self.check_words()

    def check_words(self):
        def said_of(name):
            trace, = (one for one in self.traces() if os.path.basename(one) == name + ".ctrace")
            done = subprocess.run([SHOW, "findings", "--json", trace], stdout=subprocess.PIPE, universal_newlines=True)
            return done.stdout

        text = said_of("wrong_saved_of_exp")
        self.assertRegex(text, r"saved:0 of op ExpBackward in .*is not what it was as saved:0 of op Exp in .*"
                               r"What op SquareBackward in .* left of its saved:0 is what lies there now")
        self.assertIn("others held that memory", said_of("wrong_saved_of_tanh"))
        self.assertNotIn("others held that memory", said_of("wrong_gradient_alone"))
        self.assertIn("No op that is recorded gave these bytes", said_of("wrong_batch_refilled"))
        self.assertIn("If the backward writes that attribute of ctx before it reads it", said_of("wrong_buffer_of_ctx"))


if __name__ == "__main__":
    unittest.main()
