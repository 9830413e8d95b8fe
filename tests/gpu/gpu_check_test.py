"""tools/gpu-check itself, on the fake driver: every section runs or says why not, and the report keeps its promises.

usage: gpu_check_test.py BUILD SOURCE [--cpu]; --cpu also runs the Python workloads, on the CPU: minutes.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = (pathlib.Path(argument) for argument in sys.argv[1:3])
WITH_CPU = "--cpu" in sys.argv
COMMAND = [sys.executable, str(SOURCE / "tools" / "gpu-check")]
SECTIONS = {"driver", "statistics", "aliasing", "frameworks", "overhead", "robustness"}
NEEDS_NO_TORCH = {"injection", "ways to the driver", "operands", "threads", "launch cost", "bits", "outputs"}


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def check(self, *arguments, device=True, **environment):
        variables = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        variables["CONVTRACE_BUILD"] = str(BUILD)
        variables["LD_LIBRARY_PATH"] = str(BUILD / "fakecuda") if device else ""
        done = subprocess.run([*COMMAND, "--out", str(self.out), *arguments], env={**variables, **environment},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path = self.out / "report.json"
        return done, json.loads(path.read_text()) if path.exists() else None


@unittest.skipIf(WITH_CPU, "")
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


@unittest.skipUnless(WITH_CPU, "")
class OnTheCpu(GpuCheck):
    def test_the_workloads_do_what_the_checks_expect_of_them(self):
        done, report = self.check("--device", "cpu", "--full", device=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        passed = {c["name"] for s in report["sections"] for c in s["checks"] if c["status"] == "pass"}
        self.assertLessEqual({"bug: forward", "bug: late", "correct: dlpack", "gpt", "GPT-like step", "interrupt",
                              "against torch in float64"}, passed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
