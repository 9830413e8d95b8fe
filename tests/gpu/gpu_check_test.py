"""tools/gpu-check itself, on the fake driver: every section runs or says why not, and the report keeps its promises.

usage: gpu_check_test.py BUILD SOURCE [--cpu | --gpu]
--cpu: the Python workloads on the CPU, minutes. --gpu: the command itself on this machine's device; exit code 77 without one.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
WHERE = sys.argv[3] if len(sys.argv) > 3 else "--fake"
COMMAND = [sys.executable, str(SOURCE / "tools" / "gpu-check")]
SECTIONS = {"driver", "statistics", "aliasing", "frameworks", "overhead", "robustness"}
NEEDS_NO_TORCH = {
    "injection", "injection in odd ways", "ways to the driver", "operands", "threads", "launch cost",
    "capture that any thread can break", "bits", "outputs", "launches that take freed memory",
    "random histories of memory", "illegal address"}


def runs(pid):
    """Whether there is such a process that has not ended; one that ended may wait for its parent."""
    try:
        with open("/proc/%s/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def environment(self, device=True, **environment):
        variables = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        variables["CONVTRACE_BUILD"] = str(BUILD)
        variables["LD_LIBRARY_PATH"] = str(BUILD / "fakecuda") if device else ""
        if device:  # PyTorch has no use for the fake one: to import it each time would only take long
            (self.out / "torch.py").write_text("raise ImportError('hidden by the test')")
            variables["PYTHONPATH"] = str(self.out)
        return {**variables, **environment}

    def check(self, *arguments, device=True, **environment):
        done = subprocess.run([*COMMAND, "--out", str(self.out), *arguments], env=self.environment(device, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return done, self.report()

    def report(self):
        path = self.out / "report.json"
        return json.loads(path.read_text()) if path.exists() else None


@unittest.skipUnless(WHERE == "--fake", "")
class OnTheFakeDriver(GpuCheck):
    def test_everything_passes_or_says_why_not(self):
        done, report = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(report["device"], "Fake device 0")
        self.assertEqual({section["name"] for section in report["sections"]}, SECTIONS)
        checks = {check["name"]: check for section in report["sections"] for check in section["checks"]}
        for name, check in checks.items():
            self.assertIn(check["status"], ("pass", "skip"), name)
            self.assertEqual(bool(check["why"]), check["status"] == "skip", name)
        for name in NEEDS_NO_TORCH:
            self.assertEqual(checks[name]["status"], "pass", checks[name]["why"])
        for section in report["sections"]:
            self.assertEqual(set(section), {"name", "status", "why", "numbers", "checks"})
        text = (self.out / "report.md").read_text()
        for name in SECTIONS | NEEDS_NO_TORCH:
            self.assertIn(name, text)

    def test_a_resumed_run_keeps_what_ran_and_repeats_what_was_skipped(self):
        _, first = self.check("--section", "statistics")
        ran = [c for c in first["sections"][0]["checks"] if c["status"] == "pass"]
        self.assertEqual([c["name"] for c in ran], ["bits", "outputs"])
        done, second = self.check("--section", "statistics", "--resume")
        self.assertNotIn("bits", done.stdout)
        self.assertIn("speed", done.stdout)
        self.assertIn(ran[0], second["sections"][0]["checks"])

    def cut_off(self, number):
        """Ends a run by a signal while a check is under way. @return (exit code, the report then)."""
        command = [*COMMAND, "--out", str(self.out), "--section", "driver"]
        with subprocess.Popen(command, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            def children():
                listed = pathlib.Path("/proc/%d/task" % run.pid).glob("*/children")
                return [child for path in listed for child in path.read_text().split()]

            def under_way():
                sections = (self.report() or {"sections": []})["sections"]
                return sections and len(sections[0]["checks"]) > 4 and children()

            while not under_way():
                self.assertIsNone(run.poll(), "it ended before it was cut off")
                time.sleep(0.01)
            run.send_signal(number)
            run.communicate()
        return run.returncode, self.report()

    def test_a_run_that_is_cut_off_keeps_its_part_and_can_be_resumed(self):
        code, report = self.cut_off(signal.SIGTERM)
        self.assertEqual(code, 128 + signal.SIGTERM)
        self.check_resumed(report)

    def test_a_run_that_is_cut_off_leaves_no_children(self):
        script = """if True:
            import signal, subprocess, sys
            sys.path.insert(0, sys.argv[1])
            from gpu_check import main, processes
            signal.signal(signal.SIGTERM, main.cut_off)
            child = processes.start(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE)
            print(child.pid, child.stdout.readline(), flush=True)
            signal.pause()"""
        with subprocess.Popen([sys.executable, "-c", script, str(SOURCE / "tests" / "gpu")], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as run:
            left = run.stdout.readline().split()
            self.assertEqual([runs(pid) for pid in left], [True, True])
            run.terminate()
            self.assertEqual(run.wait(), 128 + signal.SIGTERM)
        end = time.monotonic() + 10
        while any(map(runs, left)):
            self.assertLess(time.monotonic(), end, "children were left running")
            time.sleep(0.01)

    def test_a_run_that_is_killed_keeps_its_part_and_can_be_resumed(self):
        code, report = self.cut_off(signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        self.check_resumed(report)

    def check_resumed(self, report):
        before = {check["name"]: check for check in report["sections"][0]["checks"] if check["status"] == "pass"}
        self.assertTrue(before)
        done, after = self.check("--section", "driver", "--resume")
        self.assertEqual(done.returncode, 0, done.stdout)
        checks = {check["name"]: check for section in after["sections"] for check in section["checks"]}
        self.assertLessEqual(before.items(), checks.items())
        self.assertEqual(checks["launch cost"]["status"], "pass")
        again = {line[13:47].strip() for line in done.stdout.splitlines()}
        self.assertFalse(again & set(before))

    def test_another_python_or_device_resumes_nothing(self):
        self.check("--section", "statistics")
        path = self.out / "report.json"
        for key, value in (("versions", {"torch": "0"}), ("workloads", "cpu"), ("commit", "another")):
            path.write_text(json.dumps({**self.report(), key: value}))
            done, _ = self.check("--section", "statistics", "--resume")
            self.assertIn(" bits ", done.stdout, key)

    def test_what_ends_early_or_hangs_is_told_apart(self):
        """A program that fails without convtrace, too, says nothing of it; one that hangs is a failure; the end cuts it off."""
        sys.path.insert(0, str(SOURCE / "tests" / "gpu"))
        from gpu_check.bench import Bench, Failure, Skip
        from gpu_check.tree import Tree

        os.environ["CONVTRACE_BUILD"] = str(BUILD)
        bench = Bench(Tree(SOURCE), sys.executable, "cpu", False, False)
        self.addCleanup(bench.close)
        only_traced = [sys.executable, "-c", "import os, sys; sys.exit(3 if 'LD_PRELOAD' in os.environ else 0)"]
        with self.assertRaisesRegex(Failure, "ended with 3"):
            bench.succeeded(bench.traced(only_traced)[0])
        with self.assertRaisesRegex(Skip, "without convtrace, too"):
            bench.succeeded(bench.traced([sys.executable, "-c", "raise SystemExit(3)"])[0])
        with self.assertRaisesRegex(Failure, "without convtrace with 0"):  # 77: "not here", but only when traced
            bench.succeeded(bench.traced([sys.executable, "-c", only_traced[2].replace("3", "77")])[0])
        with self.assertRaisesRegex(Failure, "did not end within 1 s"):
            bench.run(["sleep", "100"], timeout=1)
        bench.end = time.monotonic() + 1
        with self.assertRaisesRegex(Skip, "time was over"):
            bench.run(["sleep", "100"], timeout=50)

    def test_numbers_survive_a_failure_and_are_json(self):
        sys.path.insert(0, str(SOURCE / "tests" / "gpu"))
        from gpu_check.bench import Bench, Failure
        from gpu_check.check import Check
        from gpu_check.main import run_check
        from gpu_check.tree import Tree

        def misses_its_goal(bench):
            bench.note({"ratio": 2.0, "never": float("nan")})
            raise Failure("goal missed")

        bench = Bench(Tree(SOURCE), sys.executable, "cuda", False, False)
        self.addCleanup(bench.close)
        entry = run_check(bench, Check("speed", misses_its_goal, 1, False, False), 10)
        self.assertEqual((entry["status"], entry["numbers"]), ("fail", {"ratio": 2.0, "never": "nan"}))
        with self.assertRaisesRegex(Failure, "goal <= 1.02"):
            bench.judge("step", 1.03, 1.02)
        with self.assertRaisesRegex(Failure, "other ones"):
            bench.expect_same({"digest": "a"}, {"digest": "b"}, lambda: {"digest": "a"})
        bench.expect_same({"digest": "a"}, {"digest": "b"}, lambda: {"digest": "c"})
        self.assertIn("same_bits", bench.numbers)

    def test_a_driver_that_fails_is_a_failure_with_its_reason(self):
        done, report = self.check("--section", "driver", FAKECUDA_STICKY_AT_LAUNCH="100")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(report["sections"][0]["status"], "fail")
        self.assertIn("ended with 1", report["sections"][0]["why"])

    def test_no_device_is_no_failure(self):
        done, report = self.check("--section", "driver", FAKECUDA_INIT_RESULT="100")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIsNone(report["device"])
        self.assertEqual({c["status"] for c in report["sections"][0]["checks"]}, {"skip"})

    def test_a_tree_that_is_not_built_is_named(self):
        done, report = self.check(CONVTRACE_BUILD=str(self.out))
        self.assertEqual((done.returncode, report), (2, None))
        self.assertIn("not built", done.stderr)


@unittest.skipUnless(WHERE == "--cpu", "")
class OnTheCpu(GpuCheck):
    def test_the_workloads_do_what_the_checks_expect_of_them(self):
        done, report = self.check("--device", "cpu", "--full", device=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        passed = {c["name"] for s in report["sections"] for c in s["checks"] if c["status"] == "pass"}
        self.assertLessEqual({"bug: forward", "bug: late", "correct: dlpack", "every faulty op", "every correct program",
                              "two ranks, one faulty", "faulty ops in C++", "gpt", "attention", "lstm", "checkpointed",
                              "distributed", "compiled", "GPT-like step", "interrupt", "end: os_exit", "kill -9",
                              "against torch in float64"}, passed)


@unittest.skipUnless(WHERE == "--gpu", "")
class OnTheDevice(unittest.TestCase):
    def test_nothing_fails(self):
        """What it saw stays in build/gpu-check."""
        self.assertEqual(subprocess.run(COMMAND, env={**os.environ, "CONVTRACE_BUILD": str(BUILD)}).returncode, 0)


def need_device():
    sys.path.insert(0, str(SOURCE / "tests" / "gpu"))
    from gpu_check import machine

    device, why = machine.driver()
    if device is None:
        print("skipped: " + why)
        sys.exit(77)


if __name__ == "__main__":
    if WHERE == "--gpu":
        need_device()
    unittest.main(argv=sys.argv[:1])
