"""Ops that hand out memory that they do not own are found, each by its name; what looks alike and is
right gives nothing. Real PyTorch under the real preload library."""
import json
import subprocess
import unittest

from preload_test import SHOW, ProgramTest


class Aliasing(ProgramTest):
    def run_cases(self, which):
        """What a program printed without and with the preload, which must be the same, and its findings."""
        plain = self.run_program("aliasing.py", which, preload=False)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        traced = self.run_program("aliasing.py", which)
        self.assertEqual(traced.returncode, 0, traced.stderr)
        trace, = self.traces()
        found = self.records(trace, "findings", expect=4 if which == "faulty" else 0)
        self.check_replay(trace, found)
        return plain, traced, found

    def check_replay(self, trace, found):
        done = subprocess.run([SHOW, "findings", "--replay", "--json", trace], stdout=subprocess.PIPE, text=True)
        replayed = [json.loads(line) for line in done.stdout.splitlines()]
        for finding in (*found, *replayed):
            del finding["seq"]
        self.assertEqual(found, replayed)

    def test_each_faulty_op_is_named_and_no_other(self):
        plain, traced, found = self.run_cases("faulty")
        names = [line.split()[0] for line in plain.stdout.splitlines() if line[0] != "#"]
        self.assertEqual([line.split()[0] for line in traced.stdout.splitlines() if line[0] != "#"], names)
        self.assertIn("# second unwinder: True\n# a C++ exception arrived\n", traced.stdout)
        self.assertEqual({f["op"] for f in found}, set(names))
        errors = [f for f in found if f["level"] == "error"]
        self.assertEqual({f["kind"] for f in errors} - {"stale-read"}, {"freed-under-output"})
        mutated = {f["op"]: f["slot"] for f in found if f["kind"] == "input-mutated"}
        self.assertEqual(mutated, {"ChangesInput": "input:0", "ChangesGradientBackward": "grad_output:0",
                                   "aliasing_test::denies": "input:0"})
        # The argument itself has one storage with the result: nothing can be freed under it.
        self.assertEqual({f["op"] for f in errors}, set(names) - {"aliasing_test::hidden"} - set(mutated))
        freed = {f["op"]: f for f in errors if f["kind"] == "freed-under-output"}
        self.assertEqual(freed["GivesNinth"]["slot"], "output:8")
        self.assertEqual(freed["GivesInterior"]["bytes"], 4 * (64 * 64 - 512))
        self.assertEqual((freed["GivesGradientBackward"]["phase"], freed["GivesGradientBackward"]["slot"]),
                         ("backward", "grad_input:0"))
        self.assertEqual([f["op"] for f in found if f["kind"] == "output-aliases-input"].count("Late"), 1)
        self.assertIn(" W finding: freed-under-output", traced.stderr)

    def test_correct_programs_have_no_error_and_no_warning_but_for_sharing(self):
        plain, traced, found = self.run_cases("correct")
        # That a result lies over memory of another owner is told, not blamed.
        self.assertEqual({(f["op"], f["kind"], f["level"]) for f in found},
                         {(op, "output-aliases-input", "warning") for op in ("Numpy", "Dlpack", "NumpyOwner")})
        self.assertEqual((traced.stdout, traced.stderr), (plain.stdout, plain.stderr))


if __name__ == "__main__":
    unittest.main()
