"""Buffers that a recomputation writes once more are told, also in a method of a module that is not called again. Needs the built
libraries and programs (CONVTRACE_BUILD)."""
import json
import pathlib
import re
import subprocess
import unittest

from preload_test import SHOW, ProgramTest

PROGRAM = "recomputed.py"
CASES = re.findall(r"@case\ndef (\w+)", (pathlib.Path(__file__).parent / "programs" / PROGRAM).read_text())


class Recomputed(ProgramTest):
    shared = True

    def findings_of(self, case):
        before = set(self.traces())
        done = self.run_program(PROGRAM, case)
        self.assertEqual(done.returncode, 0, done.stderr)
        trace, = set(self.traces()) - before
        said = subprocess.run([SHOW, "check", "--json", "-", trace], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True)
        return [(one["level"], one["id"]) for one in json.loads(said.stdout)["findings"] if one["level"] != "hint"]

    def test_methods(self):
        for case in CASES:
            with self.subTest(case):
                self.assertEqual(self.findings_of(case), [("warning", "recomputed-buffer")] if case.startswith("wrong") else [])


if __name__ == "__main__":
    unittest.main()
