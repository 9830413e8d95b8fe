"""`convtrace run --overhead` on a training run, and a second run with the same steps by `--like`."""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: %s has no torch" % sys.executable)
    sys.exit(77)

BIN = pathlib.Path(os.environ["CONVTRACE_BUILD"]) / "bin"
PROGRAMS = pathlib.Path(__file__).parent / "programs"
STEPS = 620  # behind step 500, where one step of 100 has been paid back


def run(folder, *arguments, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE") and k != "LD_PRELOAD"}
    return subprocess.run([BIN / arguments[0], *map(str, arguments[1:])], cwd=folder, text=True, timeout=300,
                          env=dict(kept, OMP_NUM_THREADS="1", **environment), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class OverheadTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.base = cls.folder / "base.ctrace"
        cls.trace(cls.base, "long_run.py", STEPS, options=["--overhead", "20%", "--optimizer-state"])
        cls.steps = cls.facts(cls.base)["setting.CONVTRACE_STEPS"]

    @classmethod
    def trace(cls, output, program, *words, options=(), status=0, **environment):
        done = run(cls.folder, "convtrace", "run", "--overwrite", "-o", output, *options, "--", sys.executable,
                   PROGRAMS / program, *words, **environment)
        assert done.returncode == status, done.stderr
        return [line for line in done.stderr.splitlines() if " CT-" in line]

    @classmethod
    def facts(cls, trace):
        done = run(cls.folder, "convtrace", "info", "--json", trace)
        return dict(json.loads(done.stdout)["meta"]["facts"])

    def recorded(self, trace):
        lines = run(self.folder, "convtrace", "show", "--json", "--records", "stats", trace).stdout.splitlines()
        return sorted({json.loads(line)["step"] for line in lines})

    def diff(self, candidate):
        done = run(self.folder, "convtrace-diff", self.base, candidate)
        return done.returncode, done.stdout


class Base(OverheadTest):
    """The decision of the first run, and its report."""

    def test_the_steps_with_values_are_those_that_the_fact_names(self):
        found = re.fullmatch(r"0-(\d+),every=5\|(\d+)-(?:,every=(\d+))?", self.steps)
        self.assertTrue(found, self.steps)
        last, first, every = int(found[1]), int(found[2]), int(found[3] or 1)
        self.assertGreaterEqual(last, 24)
        self.assertEqual(self.recorded(self.base),
                         [*range(0, last + 1, 5), *range(first, STEPS, every)])
        text = run(self.folder, "convtrace", "info", self.base).stdout
        said, = re.findall(r"^overhead +(.*)$", text, re.M)
        self.assertRegex(said, r"^20%% asked; a step with values takes [\d.]+ times one without: one of %d has values "
                         r"from step %d on" % (every, first))

    def test_a_run_that_ends_before_it_is_decided(self):
        trace = self.folder / "short.ctrace"
        self.assertEqual(self.trace(trace, "long_run.py", 12, options=["--overhead", "5"]), [])
        self.assertEqual(self.recorded(trace), [0, 5, 10])
        self.assertEqual(self.facts(trace)["setting.CONVTRACE_STEPS"], "all,every=5")
        self.assertIn("not decided", self.facts(trace)["overhead"])

    def test_a_program_without_an_optimizer(self):
        trace = self.folder / "inference.ctrace"
        self.assertEqual(self.trace(trace, "inference.py", options=["--overhead", "5%"]), [])
        self.assertIn("not decided", self.facts(trace)["overhead"])
        self.assertIn(0, self.recorded(trace))

    def test_steps_that_are_named_leave_it_without_effect(self):
        trace = self.folder / "named.ctrace"
        line, = self.trace(trace, "long_run.py", 4, options=["--overhead", "5%", "--steps", "1-2"])
        self.assertIn("CT-1003 CONVTRACE_OVERHEAD has no effect: CONVTRACE_STEPS names the steps", line)
        self.assertEqual(self.recorded(trace), [1, 2])
        self.assertNotIn("overhead", self.facts(trace))


class Candidate(OverheadTest):
    """A second run with the settings of the first."""

    def like(self, name, *words, options=(), **environment):
        trace = self.folder / name
        said = self.trace(trace, "long_run.py", STEPS, *words, options=["--like", self.base, *options], **environment)
        return trace, said

    def test_equal_runs_record_the_same_and_are_identical(self):
        trace, said = self.like("same.ctrace")
        self.assertEqual(said, [])
        self.assertEqual(self.facts(trace)["setting.CONVTRACE_STEPS"], self.steps)
        self.assertEqual(self.facts(trace)["setting.CONVTRACE_OPTIMIZER_STATE"], "1")
        self.assertEqual(self.recorded(trace), self.recorded(self.base))
        status, report = self.diff(trace)
        self.assertEqual(status, 0, report)
        self.assertTrue(report.startswith("IDENTICAL"), report)
        self.assertNotIn("overhead", report.lower())

    def test_a_fault_in_a_recorded_step(self):
        steps = self.recorded(self.base)
        for fault in (steps[3], steps[-1]):
            with self.subTest(fault):
                trace, said = self.like("fault.ctrace", fault)
                self.assertEqual(said, [])
                status, report = self.diff(trace)
                self.assertEqual(status, 1, report)
                self.assertIn("DIVERGED at step %d, forward, 1 (call 0): output:0" % fault, report)

    def test_a_fault_in_a_step_without_values_is_seen_in_the_next_with_values(self):
        steps = self.recorded(self.base)
        trace, _ = self.like("between.ctrace", steps[3] + 1)
        status, report = self.diff(trace)
        self.assertEqual(status, 1, report)
        self.assertIn("DIVERGED at step %d, " % steps[4], report)

    def test_settings_that_are_given_win(self):
        trace, said = self.like("given.ctrace", options=["--steps", "0-1"], CONVTRACE_MODE="hash")
        self.assertEqual([line.split(" CT-")[1] for line in said],
                         ["2205 %s: CONVTRACE_MODE=hash, CONVTRACE_STEPS=0-1 of this command, not of that run" % self.base])
        self.assertEqual(self.recorded(trace), [0, 1])
        facts = self.facts(trace)
        self.assertEqual((facts["setting.CONVTRACE_MODE"], facts["setting.CONVTRACE_OPTIMIZER_STATE"]), ("hash", "1"))

    def test_an_overhead_that_is_given_chooses_steps_anew(self):
        trace, said = self.like("anew.ctrace", options=["--overhead", "1000%"])
        self.assertIn("CONVTRACE_OVERHEAD=1000% of this command", said[0])
        self.assertIn("1e+03% asked", self.facts(trace)["overhead"])
        self.assertIn(self.diff(trace)[0], (0, 3))

    def test_a_base_that_cannot_be_read_is_one_line(self):
        whole = self.base.read_bytes()
        damaged, other = bytearray(whole), bytearray(whole)
        damaged[64:len(whole) // 2] = bytes(len(whole) // 2 - 64)  # what tells of the run is among it
        other[8] = 99  # the format's major version
        for name, content, why in (("damaged", damaged, "CT-2103"), ("other", other, "CT-2101"), ("none", b"", "CT-2101")):
            with self.subTest(name):
                path = self.folder / (name + ".ctrace")
                path.write_bytes(content)
                done = run(self.folder, "convtrace", "run", "--like", path, "--", "echo", "started")
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                line, = done.stderr.splitlines()
                self.assertIn(why, line)

    def test_a_base_that_was_killed_says_so_and_serves(self):
        path = self.folder / "cut.ctrace"
        shutil.copy(self.base, path)
        os.truncate(path, path.stat().st_size - 64)  # the end that an index has
        done = run(self.folder, "convtrace", "run", "--like", path, "--dry-run", "--", "true")
        self.assertEqual(done.returncode, 0)
        line, = done.stderr.splitlines()
        self.assertIn("CT-2102", line)
        self.assertIn("CONVTRACE_STEPS='%s'" % self.steps, done.stdout)


class Rules(OverheadTest):
    def test_rules_come_from_the_file_if_it_is_still_that_one(self):
        config = self.folder / "rules.toml"
        config.write_text('mode = "hash"\n[[rule]]\nscope = "1"\ncapture = "stats"\n')
        trace = self.folder / "ruled.ctrace"
        self.assertEqual(self.trace(trace, "long_run.py", 3, options=["--config", config]), [])

        def like():
            return run(self.folder, "convtrace", "run", "--like", trace, "--dry-run", "--", "true")

        done = like()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("CONVTRACE_CONFIG=%s\n" % config, done.stdout)
        config.write_text('mode = "stats"\n[[rule]]\nscope = "1"\ncapture = "stats"\n')
        done = like()
        self.assertIn("CONVTRACE_MODE=hash\n", done.stdout)
        for text in ('[[rule]]\nscope = "2"\ncapture = "stats"\n', ""):
            config.write_text(text)
            done = like()
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            line, = done.stderr.splitlines()
            self.assertIn("CT-2206", line)

    def test_where_the_trace_goes_is_not_taken_from_that_file(self):
        config, trace = self.folder / "rules.toml", self.folder / "base.ctrace"
        config.write_text('output = "%s"\noverwrite = true\n[[rule]]\nscope = "1"\ncapture = "stats"\n' % trace)
        done = run(self.folder, "convtrace", "run", "--config", config, "--", sys.executable, PROGRAMS / "long_run.py", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        before = trace.read_bytes()
        done = run(self.folder, "convtrace", "run", "--like", trace, "--dry-run", "--", "true")
        self.assertNotIn("base.ctrace\n", done.stdout)
        self.assertNotIn("CONVTRACE_OVERWRITE=1", done.stdout)
        done = run(self.folder, "convtrace", "run", "--like", trace, "--output", trace, "--overwrite", "1", "--", "echo", "started")
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("CT-2105", done.stderr)
        self.assertEqual(trace.read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
