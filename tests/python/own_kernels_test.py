"""Kernels that libraries register for ops of torch, and code between modules, that write memory which others still need, with
CONVTRACE_OPS='*': check and convtrace-diff name who wrote, and correct programs that look alike are not accused. Needs the
built libraries and programs (CONVTRACE_BUILD)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from short_run import long

BIN = pathlib.Path(os.environ["CONVTRACE_BUILD"]) / "bin"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CONVTRACE_")} | {"OMP_NUM_THREADS": "1"}
PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "own_kernels.py"


class OwnKernels(unittest.TestCase):
    def setUp(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("needs PyTorch")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def checked(self, case):
        """@return the findings above a hint: [(level, id, op, slot, text)]; and the trace."""
        trace = self.folder / f"{case}.ctrace"
        done = subprocess.run([BIN / "convtrace", "run", "--ops", "*", "--output", trace, "--", sys.executable, PROGRAM, case],
                              stderr=subprocess.PIPE, env=ENVIRONMENT, universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run([BIN / "convtrace", "check", "--json", "-", trace], stdout=subprocess.PIPE, universal_newlines=True)
        found = [one for one in json.loads(done.stdout)["findings"] if one["level"] != "hint"]
        self.assertEqual(done.returncode, 4 if found else 0)
        return [(one["level"], one["id"], one["op"], one["slot"], one["text"]) for one in found], trace

    def test_a_kernel_of_a_library_that_writes_its_input(self):
        for case in ("silu", "silu_alone"):
            with self.subTest(case=case):
                found, trace = self.checked(case)
                self.assertEqual([one[:4] for one in found], [("error", "overwritten", "aten::silu", "input_after:0"),
                                                              ("warning", "input-mutated", "aten::silu", "input:0")])
        right, base = self.checked("silu_right")
        self.assertEqual(right, [])
        done = subprocess.run([BIN / "convtrace-diff", base, self.folder / "silu.ctrace"], stdout=subprocess.PIPE, universal_newlines=True)
        headline, = (line for line in done.stdout.splitlines() if line.startswith("DIVERGED"))
        self.assertIn("op aten::silu", headline)

    def test_memory_that_code_between_two_functions_writes(self):
        found, _ = self.checked("functions")
        self.assertEqual([one[:4] for one in found], [("warning", "overwritten", "aten::mul.Tensor", "input:1")])
        self.assertIn("input:0 of op aten::sin in the root module (call 0, forward), behind that, still found it as it was", found[0][4])
        self.assertEqual(self.checked("functions_right")[0], [])

    def test_correct_programs_are_not_accused(self):
        self.assertEqual(self.checked("norms,views,new_memory,parameters,scratch,copied,pool")[0], [])

    @long("correct_programs_are_not_accused, of fewer kinds")
    def test_more_correct_programs_are_not_accused(self):
        self.assertEqual(self.checked("recurrent,buffers,others,written")[0], [])


if __name__ == "__main__":
    unittest.main()
