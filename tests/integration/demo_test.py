#!/usr/bin/env python3
"""The demo, shortened: what the traces of its two runs say.

usage: demo_test.py record        makes the runs that the tests look at (a ctest fixture)
       demo_test.py TestCase...
Needs CONVTRACE_BUILD, the build folder.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["CONVTRACE_BUILD"])
RUNS = BUILD / "tests" / "integration" / "demo"
TRAIN = ROOT / "tools" / "demo_gpt" / "train.py"
STEPS = 4


def environment(**settings):
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
    return plain | settings


def traced(trace, **settings):
    return environment(LD_PRELOAD=str(BUILD / "lib" / "libconvtrace.so"), CONVTRACE_OUTPUT=str(trace), **settings)


def train(op, steps, env, *options):
    command = [sys.executable, str(TRAIN), "--device", "cpu", "--op", op, "--steps", str(steps), *options]
    return subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)


def record():
    shutil.rmtree(RUNS, ignore_errors=True)
    RUNS.mkdir(parents=True)
    for op in ("correct", "reuse"):
        train(op, 0, environment())  # compiles it
    runs = {
        "plain": train("correct", STEPS, environment()),
        "base": train("correct", STEPS, traced(RUNS / "base.ctrace")),
        "candidate": train("reuse", STEPS, traced(RUNS / "candidate.ctrace")),
        "python-base": train("correct", STEPS, traced(RUNS / "python-base.ctrace"), "--language", "python"),
        "python-candidate": train("reuse", STEPS, traced(RUNS / "python-candidate.ctrace"), "--language", "python"),
    }
    for name, run in runs.items():
        (RUNS / f"{name}.txt").write_text(run.stdout)
        (RUNS / f"{name}.err").write_text(run.stderr)


def text(name):
    return (RUNS / name).read_text()


def tool(name, *arguments):
    """Exit code and stdout of one of our programs."""
    run = subprocess.run([str(BUILD / "bin" / name), *map(str, arguments)], env=environment(), text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return run.returncode, run.stdout


def diff(base, candidate):
    report = RUNS / f"{base}-{candidate}.json"
    code, _ = tool("convtrace-diff", RUNS / f"{base}.ctrace", RUNS / f"{candidate}.ctrace", "--json", report)
    return code, json.loads(report.read_text())


class InvisibilityTest(unittest.TestCase):
    def test_losses_are_bit_identical_with_and_without_tracing(self):
        self.assertEqual(len(text("plain.txt").splitlines()), STEPS)
        self.assertEqual(text("base.txt"), text("plain.txt"))

    def test_a_traced_run_says_nothing_that_a_plain_run_does_not(self):
        self.assertEqual(text("base.err"), text("plain.err"))


class CompleteTraceTest(unittest.TestCase):
    def test_a_finished_run_leaves_a_complete_trace_of_all_steps(self):
        code, output = tool("convtrace", "info", "--json", RUNS / "base.ctrace")
        info = json.loads(output)
        self.assertEqual((code, info["state"], info["steps"]), (0, "complete", [0, STEPS - 1]))
        self.assertFalse(any(info["lost"].values()), info["lost"])

    def test_the_correct_op_gives_no_finding(self):
        self.assertEqual(tool("convtrace", "findings", "--json", RUNS / "base.ctrace"), (0, ""))

    def test_a_trace_against_itself_is_the_same(self):
        code, report = diff("base", "base")
        self.assertEqual((code, report["verdict"], report["root"]), (0, "same", None))
        self.assertGreater(report["compared"]["values"], 100 * STEPS)

    def test_the_printed_loss_is_the_recorded_one(self):
        _, output = tool("convtrace", "show", "--json", RUNS / "base.ctrace")
        records = map(json.loads, output.splitlines())
        losses = [f"{r['mean']:.9g}" for r in records if r["record"] == "stats" and r["slot"] == "loss"]
        self.assertEqual(losses, [line.split()[3] for line in text("base.txt").splitlines()])


class VerdictTest(unittest.TestCase):
    def test_the_bug_changes_the_losses(self):
        self.assertNotEqual(text("base.txt"), text("candidate.txt"))

    def test_the_root_is_the_op_whose_output_was_overwritten(self):
        code, report = diff("base", "candidate")
        root = report["root"]
        self.assertEqual((code, report["verdict"]), (1, "diverged"))
        self.assertIn("bias_relu", root["op"] or "")
        self.assertEqual((root["class"], root["step"], root["phase"]), ("changed-between", 0, "forward"))
        self.assertEqual((root["scope"], root["slot"]), ("transformer.0.mlp", "output:0"))
        self.assertGreater(root["matched_before"], 0)

    def test_the_finding_names_the_op_and_shows_all_three_stacks(self):
        code, output = tool("convtrace", "findings", "--json", RUNS / "candidate.ctrace")
        findings = [f for f in map(json.loads, output.splitlines()) if f["kind"] == "freed-under-output"]
        self.assertEqual(code, 4)
        self.assertEqual((findings[0]["scope"], findings[0]["step"]), ("transformer.0.mlp", 0))
        for finding in findings:
            self.assertIn("bias_relu", finding["op"])
            self.assertEqual((finding["level"], finding["slot"], finding["other"]), ("error", "output:0", "input:0"))
            self.assertIn("train.py", "".join(finding["stacks"]["launch"]))
            self.assertIn("train.py", "".join(finding["stacks"]["free"]))
            self.assertIn("libtorch_cpu", "".join(finding["stacks"]["alloc"]))


class WithoutCompilerTest(unittest.TestCase):
    def test_the_op_in_python_computes_what_the_compiled_one_does(self):
        self.assertEqual(text("python-base.txt"), text("base.txt"))

    def test_its_bug_is_named_as_well(self):
        code, report = diff("python-base", "python-candidate")
        self.assertEqual((code, report["verdict"]), (1, "diverged"))
        self.assertIn("bias_relu", report["root"]["op"] or "")
        code, output = tool("convtrace", "findings", "--json", RUNS / "python-candidate.ctrace")
        kinds = {f["kind"] for f in map(json.loads, output.splitlines()) if "bias_relu" in (f["op"] or "")}
        self.assertEqual((code, "freed-under-output" in kinds), (4, True))


class KilledRunTest(unittest.TestCase):
    def test_after_kill_9_every_closed_chunk_is_readable(self):
        trace = RUNS / "killed.ctrace"
        command = [sys.executable, str(TRAIN), "--device", "cpu", "--steps", "100000"]
        process = subprocess.Popen(command, env=traced(trace, CONVTRACE_OVERWRITE="1"), text=True, stdout=subprocess.PIPE)
        size = 0
        for _ in process.stdout:
            size = trace.stat().st_size
            if size > 64 * 1024:  # some chunks are closed, and one is open
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        code, output = tool("convtrace", "info", "--json", trace)
        info = json.loads(output)
        self.assertEqual((code, info["state"]), (3, "unclosed"))
        self.assertGreater(info["records"]["stats"], 0)
        code, output = tool("convtrace", "show", "--json", trace)
        shown = [json.loads(line)["record"] for line in output.splitlines()]
        self.assertEqual((code, shown.count("stats")), (3, info["records"]["stats"]))


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        record()
    else:
        unittest.main(verbosity=2)
