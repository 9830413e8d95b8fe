"""CONVTRACE_POISON under the real preload library: what an op leaves unwritten is found, memory of others is
left alone, and where it cannot be done it is said."""
import os
import unittest

from preload_test import ProgramTest, raw
from support import torch


class Poison(ProgramTest):
    def run_poisoned(self, **settings):
        return self.run_program("poison.py", os.path.join(self.folder, "file"), CONVTRACE_POISON="1", **settings)

    def test_unwritten_elements_are_found_where_they_arise(self):
        done = self.run_poisoned()
        self.assertEqual(done.stdout.splitlines(), [
            "written 2048", "passed on True", "whole 8192.0 0.0 -64", "mapped 499500.0", "file 499500.0",
            "shared 4950.0", "loaded [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]"], done.stderr)
        trace, = self.traces()
        found, = self.records(trace, "findings")
        self.assertEqual((found["kind"], found["level"], found["op"], found["slot"]),
                         ("never-written", "warning", "Half", "output:0"))
        self.assertIn("was not written in 2048 of 4096 elements", found["message"])
        self.assertNotIn("refused", done.stderr)

    def test_results_of_a_program_that_writes_what_it_reads_are_its_own(self):
        outputs = [os.path.join(self.folder, name) for name in ("plain.pt", "poisoned.pt")]
        plain = self.run_program("train.py", "transformer", outputs[0], preload=False)
        poisoned = self.run_program("train.py", "transformer", outputs[1], CONVTRACE_POISON="1")
        self.assertEqual((poisoned.returncode, poisoned.stdout, poisoned.stderr), (0, plain.stdout, ""))
        for (*place, expected), (*_, found) in zip(*map(torch.load, outputs)):
            self.assertEqual(raw(expected), raw(found), place)
        trace, = self.traces()
        self.check_clean(trace)

    def test_where_it_cannot_be_done_it_is_refused_with_the_reason(self):
        done = self.run_poisoned(CONVTRACE_CPU_ALLOC="off")
        self.assertIn("CONVTRACE_POISON is refused: it fills memory of CPU tensors", done.stderr)
        trace, = self.traces()
        self.assertEqual(self.records(trace, "findings"), [])

    def test_quarantine_is_refused_with_the_reason(self):
        done = self.run_program("poison.py", os.path.join(self.folder, "file"), CONVTRACE_QUARANTINE="1")
        self.assertIn("CONVTRACE_QUARANTINE is refused: allocators tell what they free", done.stderr)


if __name__ == "__main__":
    unittest.main()
