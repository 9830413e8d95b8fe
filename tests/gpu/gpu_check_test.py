"""tools/gpu-check itself, on the fake driver: every part runs or says why not, and its results keep their promises.

usage: gpu_check_test.py BUILD SOURCE [--cpu]
--cpu: the Python workloads on the CPU, minutes.
"""
import contextlib
import io
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest
import unittest.mock

BUILD, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
WHERE = sys.argv[3] if len(sys.argv) > 3 else "--fake"
COMMAND = [sys.executable, str(SOURCE / "tools" / "gpu-check")]
NEEDS_NO_TORCH = {  # by part
    1: {"injection", "injection in odd ways", "ways to the driver", "operands", "threads",
        "capture that any thread can break", "launches that take freed memory", "random histories of memory", "illegal address"},
    3: {"preparation beside a busy device"},
    4: {"bits", "outputs"},
    6: {"launch cost"},
    8: {"NCCL's functions"},
    10: {"a million launches from one thread", "a million launches from 16 threads"}}

sys.path.insert(0, str(SOURCE / "tests" / "gpu"))
os.environ["CONVTRACE_BUILD"] = str(BUILD)
from gpu_check import archive, checks, machine, results, runner, schedule  # noqa: E402, F401
from gpu_check.bench import Bench, Failure, Late, Skip, Trace  # noqa: E402
from gpu_check.check import CHECKS, PARTS, Check  # noqa: E402
from gpu_check.tree import Tree  # noqa: E402


def runs(pid):
    """@return whether a process exists and has not ended. An ended one may still wait for its parent."""
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
        variables["LD_LIBRARY_PATH"] = str(BUILD / "fakecuda") if device else ""
        return {**variables, **environment}

    def check(self, *arguments, device=True, **environment):
        """@return (the process, what it wrote, None for nothing)."""
        done = subprocess.run([*COMMAND, "--out", str(self.out), *arguments], env=self.environment(device, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return done, self.results()

    def results(self):
        found = list(results.load(self.out).values())
        return found[0] if found else None

    def bench(self):
        bench = Bench(Tree(SOURCE), sys.executable, "cuda", False)
        self.addCleanup(bench.close)
        return bench


@unittest.skipUnless(WHERE == "--fake", "")
class OnTheFakeDriver(GpuCheck):
    def test_every_part_passes_or_says_why_not(self):
        for part in PARTS:
            done, seen = self.check("--part", str(part))
            ended = {name: check for name, check in seen["checks"].items() if check["part"] == part}
            self.assertEqual(set(ended), {one.name for one in CHECKS if one.part == part})
            for name, check in ended.items():
                self.assertIn(check["result"], ("pass", "skip"), (name, check))
                self.assertEqual(bool(check["why"]), check["result"] == "skip", name)
            passed = {name for name, check in ended.items() if check["result"] == "pass"}
            self.assertEqual(passed, NEEDS_NO_TORCH.get(part, set()))
            self.assertEqual(done.returncode, 0 if passed else 3, done.stdout + done.stderr)  # nothing ran: no pass
        self.assertEqual((seen["device"], len(seen["runs"])), ("Fake device 0", 1))

    def test_logs_of_what_cupti_calls_are_written(self):
        done, seen = self.check("--record")
        self.assertEqual(done.returncode, 0, done.stdout)
        logs = {path.stem: path.read_text().splitlines() for path in (self.out / "cupti").glob("*.log")}
        self.assertEqual(set(logs), {"operands", "graph_pool"})
        for name, lines in logs.items():
            numbers = seen["checks"]["log: " + name.replace("_", " ")]["numbers"]
            self.assertEqual((numbers["without_exit"], numbers["without_entry"]), (0, 0))
            self.assertEqual(sum('"site":"enter"' in line for line in lines), numbers["calls"])
            self.assertEqual(json.loads(lines[0])["log"], "cupti")

    def test_a_resumed_run_leaves_out_what_ran_and_repeats_what_did_not(self):
        _, first = self.check("--part", "4")
        done, second = self.check("--part", "4", "--resume")
        self.assertNotIn(" bits ", done.stdout)
        self.assertIn("against torch", done.stdout)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(second["checks"]["bits"], first["checks"]["bits"])
        second["checks"]["bits"]["result"] = "fail"
        results.write(self.out, second)
        # A check that failed before still fails.
        self.assertEqual(self.check("--part", "4", "--resume")[0].returncode, 1)

    def test_another_python_or_commit_resumes_nothing(self):
        self.check("--check", "outputs")
        path, = self.out.glob("*.json")
        seen = self.results()
        seen["runs"][0]["versions"] = {"torch": "0"}
        path.write_text(json.dumps(seen))
        self.assertIn(" outputs ", self.check("--check", "outputs", "--resume")[0].stdout)
        self.assertEqual(len(self.results()["runs"]), 2)
        path.unlink()
        results.write(self.out, {**seen, "commit": "another"})
        self.assertIn(" outputs ", self.check("--check", "outputs", "--resume")[0].stdout)

    def cut_off(self, number):
        """Ends a run by a signal while a check is under way. @return (exit code, the results then)."""
        command = [*COMMAND, "--out", str(self.out), "--part", "1"]
        with subprocess.Popen(command, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            def children():
                listed = pathlib.Path("/proc/%d/task" % run.pid).glob("*/children")
                return [child for path in listed for child in path.read_text().split()]

            while not (self.results() and len(self.results()["checks"]) > 3 and children()):
                self.assertIsNone(run.poll(), "it ended before it was cut off")
                time.sleep(0.01)
            run.send_signal(number)
            run.communicate()
        return run.returncode, self.results()

    def test_a_run_that_is_cut_off_keeps_its_part_and_can_be_resumed(self):
        for number, code in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
            ended, seen = self.cut_off(number)
            self.assertEqual(ended, code)
            seen["checks"] = {name: check for name, check in seen["checks"].items() if results.ran(check)}
            done, after = self.check("--part", "1", "--resume")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual({name: after["checks"][name] for name in seen["checks"]}, seen["checks"])
            self.assertEqual(after["checks"]["illegal address"]["result"], "pass")
            for name in seen["checks"]:
                self.assertNotIn(" %s  " % name, done.stdout)
            next(self.out.glob("*.json")).unlink()

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
        self.expect_ended(left)

    def expect_ended(self, pids):
        end = time.monotonic() + 10
        while any(map(runs, pids)):
            self.assertLess(time.monotonic(), end, "children were left running")
            time.sleep(0.01)

    def test_what_hangs_is_killed_at_the_end_and_what_had_not_begun_is_said(self):
        """One check ends, one hangs, one would be alone behind it."""
        script = """if True:
            import pathlib, sys, time
            sys.path.insert(0, sys.argv[1])
            from gpu_check import results, runner, schedule
            from gpu_check.bench import Bench
            from gpu_check.check import Check
            from gpu_check.tree import Tree
            schedule.UNKNOWN = schedule.END = 0

            def hangs(bench):
                bench.note({"x": 2})
                bench.run(["sh", "-c", "echo $$ >" + sys.argv[2] + "/pid; sleep 1000"], timeout=900)

            writer = results.Writer(pathlib.Path(sys.argv[2]), "GPU", "commit", {"date": "2026-01-01"})
            make = lambda: Bench(Tree(pathlib.Path(sys.argv[3])), sys.executable, "cuda", False, pathlib.Path(sys.argv[2]))
            checks = [Check("ends", 1, lambda bench: {"x": 1}, False), Check("hangs", 1, hangs, False),
                      Check("waits", 1, hangs, True)]
            sys.exit(runner.Runner(writer, make, time.monotonic() + 2).run(checks))"""
        done = subprocess.run([sys.executable, "-c", script, str(SOURCE / "tests" / "gpu"), str(self.out), str(SOURCE)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 3, done.stderr)
        seen = self.results()["checks"]
        self.assertEqual({name: (check["result"], check["numbers"]) for name, check in seen.items()},
                         {"ends": ("pass", {"x": 1}), "hangs": ("not run", {"x": 2}), "waits": ("not run", {})})
        self.expect_ended([(self.out / "pid").read_text().strip()])

    def test_nothing_begins_when_the_time_is_nearly_over(self):
        done, seen = self.check("--part", "1", "--within", "5")
        self.assertEqual(done.returncode, 3)
        self.assertEqual({check["result"] for check in seen["checks"].values()}, {"not run"})
        self.assertRegex(done.stdout, "skipped: threads +its 30 s do not fit into the 0 s ")

    def test_what_ends_early_or_hangs_is_told_apart(self):
        """A program that fails without convtrace, too, says nothing of it; one that hangs is a failure."""
        bench = self.bench()
        only_traced = [sys.executable, "-c", "import os, sys; sys.exit(3 if 'LD_PRELOAD' in os.environ else 0)"]
        with self.assertRaisesRegex(Failure, "ended with 3"):
            bench.succeeded(bench.traced(only_traced)[0])
        with self.assertRaisesRegex(Skip, "without convtrace, too"):
            bench.succeeded(bench.traced([sys.executable, "-c", "raise SystemExit(3)"])[0])
        with self.assertRaisesRegex(Failure, "without convtrace with 0"):  # 77: "not here", but only when traced
            bench.succeeded(bench.traced([sys.executable, "-c", only_traced[2].replace("3", "77")])[0])
        with self.assertRaisesRegex(Failure, "did not end within 1 s"):
            bench.run(["sleep", "100"], timeout=1)

    def test_numbers_survive_a_failure_and_are_json(self):
        def misses_its_goal(bench):
            bench.note({"ratio": 2.0, "never": float("nan")})
            raise Failure("goal missed")

        bench = self.bench()
        ended = runner.run_check(bench, Check("speed", 7, misses_its_goal, False))
        self.assertEqual((ended["result"], ended["numbers"]), ("fail", {"ratio": 2.0, "never": "nan"}))
        with self.assertRaisesRegex(Failure, "goal <= 1.02"):
            bench.judge("step", 1.03, 1.02)
        with self.assertRaisesRegex(Failure, "other ones"):
            bench.expect_same({"digest": "a"}, {"digest": "b"}, lambda: {"digest": "a"})
        bench.expect_same({"digest": "a"}, {"digest": "b"}, lambda: {"digest": "c"})
        self.assertIn("same_bits", bench.numbers)

    def test_a_trace_is_clean_with_few_values_that_were_not_ready_and_with_no_other_loss(self):
        class Made(Trace):
            findings, info = [], None

            def records(self, kind=None):
                return []

        trace = Made(None, None)
        for lost, stats, clean in (({}, 0, True), ({"stream not safe to use": 3}, 5, True),
                                   ({"stream not safe to use": 6}, 5, False), ({"queue full": 1}, 5, False)):
            trace.info = {"state": "complete", "lost": lost, "records": {"stats": stats}}
            if clean:
                trace.check_clean()
            else:
                self.assertRaises(Failure, trace.check_clean)

    def test_the_libcupti_is_the_newest_that_is_not_newer_than_the_driver(self):
        paths = {}
        for name, major in (("cuda_cupti", "12"), ("cu13", "13")):
            folder = self.out / "nvidia" / name / "lib"
            folder.mkdir(parents=True)
            paths[major] = folder / ("libcupti.so." + major)
            paths[major].touch()
        with unittest.mock.patch.dict(os.environ, {"PYTHONPATH": str(self.out)}):
            self.assertEqual(machine.find_cupti(sys.executable, "13.0"), str(paths["13"]))
            self.assertEqual(machine.find_cupti(sys.executable, "12.4"), str(paths["12"]))
            paths["12"].unlink()
            if not pathlib.Path("/usr/local/cuda").exists():  # which may have one
                self.assertEqual(machine.find_cupti(sys.executable, "12.4"), str(paths["13"]))
            with unittest.mock.patch.dict(os.environ, {"CONVTRACE_CUPTI": "/asked/for"}):
                self.assertEqual(machine.find_cupti(sys.executable, "12.4"), "/asked/for")

    def test_a_driver_that_fails_is_a_failure_with_its_reason(self):
        done, seen = self.check("--part", "1", FAKECUDA_STICKY_AT_LAUNCH="100")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(seen["checks"]["threads"]["result"], "fail")
        self.assertIn("ended with 1", seen["checks"]["threads"]["why"])
        kept = self.out / "failed"  # to find the reason where there is no device
        self.assertIn("exit code 1", (kept / "threads" / "processes.txt").read_text())
        self.assertTrue(list(kept.rglob("*.ctrace")))

    def test_without_a_device_nothing_passes(self):
        done, seen = self.check("--part", "1", FAKECUDA_INIT_RESULT="100")
        self.assertEqual((done.returncode, seen), (3, None))
        self.assertEqual(done.stdout, "gpu-check: nothing was run: the CUDA driver has no device (cuInit says 100)\n")

    def test_a_tree_that_is_not_built_is_named(self):
        done, seen = self.check("--part", "1", CONVTRACE_BUILD=str(self.out))
        self.assertEqual((done.returncode, seen), (2, None))
        self.assertIn("not built", done.stderr)


@unittest.skipUnless(WHERE == "--fake", "")
class TheSchedule(GpuCheck):
    """`--within`."""

    def planned(self, within, at_once=6):
        return schedule.plan(schedule.scheduled(), within, at_once)

    def archived(self):
        """The results in the archive, None where there is none."""
        path = self.out / archive.NAME
        return next(iter(results.load(path).values())) if path.exists() else None

    def test_every_row_is_a_check_and_what_measures_is_alone(self):
        self.assertEqual([one.name for one in schedule.scheduled()], list(schedule.ROWS))
        alone = {one.name for one in schedule.scheduled() if one.alone}
        self.assertEqual(alone, {name for name in schedule.ROWS if name in ("speed", "launch cost") or " step" in name})

    def test_it_fits_the_limit_whatever_that_is(self):
        for within in range(0, 700, 10):
            for at_once in 1, 2, 6:
                planned = self.planned(within, at_once)
                self.assertLessEqual(max((end for _, _, end in planned if end), default=0), within)
                running = [(start, end, check.alone) for check, start, end in planned if start is not None]
                for start, end, alone in running:
                    beside = [other for other in running if other[0] < end and start < other[1]]
                    self.assertTrue(len(beside) == 1 if alone else not any(other[2] for other in beside))
                    self.assertLessEqual(sum(other[0] <= start < other[1] for other in running), at_once)

    def test_ten_minutes_are_enough_for_all_of_it_and_less_leaves_out_what_decides_less(self):
        self.assertTrue(all(start is not None for _, start, _ in self.planned(560)))
        left_out = [check.name for check, start, _ in self.planned(300) if start is None]
        self.assertIn("compiled regions", left_out)
        self.assertFalse({"insertion under PyTorch: cnn", "bits", "speed", "kernels in an f32 step"} & set(left_out))

    def test_a_dry_run_shows_it_without_a_device(self):
        done, _ = self.check("--within", "300", "--dry-run", "--at-once", "6", device=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = done.stdout.splitlines()
        for check, start, end in self.planned(300):
            line = "%4.0f to %4.0f s" % (start, end) if start is not None else "skipped: %s: " % check.name
            self.assertTrue(any(one.startswith(line) and check.name in one for one in shown), check.name)
        self.assertLessEqual(float(re.search("ends at (\\d+) s", shown[-1])[1]), 300)
        self.assertEqual(list(self.out.iterdir()), [])

    def test_the_double_passes_what_it_can_and_every_other_check_says_why_not(self):
        done, _ = self.check("--within", "560", "--device", "fake", device=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        seen = self.archived()["checks"]
        self.assertEqual(set(seen), set(schedule.ROWS))
        passed = {name for name, check in seen.items() if check["result"] == "pass"}
        self.assertEqual(passed, {"bits", "outputs", "ways to the driver", "launch cost", "NCCL's functions"})
        for name, check in seen.items():
            self.assertEqual((check["result"] == "skip", bool(check["why"])), (name not in passed,) * 2, name)
            line, = (line for line in done.stdout.splitlines() if " %s  " % name in line)
            self.assertRegex(line, " pass  " if name in passed else " skipped:  *%s  *\\w" % re.escape(name))
        self.assertEqual([path.name for path in self.out.iterdir()], [archive.NAME])
        again, _ = self.check("--within", "560", "--device", "fake", "--resume", device=False)
        self.assertEqual((again.returncode, again.stdout.count(" pass ")), (0, 0))

    def test_a_run_that_is_killed_at_any_time_loses_nothing_that_was_done(self):
        """The archive has the checks that were printed as done, unchanged, and names those that were running."""
        command = [*COMMAND, "--within", "560", "--device", "fake", "--at-once", "2", "--out", str(self.out)]
        random_seconds = random.Random(7)
        for _ in range(4):
            shutil.rmtree(self.out, ignore_errors=True)
            with tempfile.TemporaryFile("w+") as log:
                with subprocess.Popen(command, env=self.environment(device=False), stdout=log, stderr=subprocess.STDOUT) as run:
                    try:
                        run.wait(random_seconds.uniform(0.5, 8))
                    except subprocess.TimeoutExpired:
                        pass
                    run.kill()
                log.seek(0)
                over = re.findall("^ +\\d+ s  (pass|fail|skipped:) +(.+?)  ", log.read(), re.MULTILINE)
            seen = self.archived()
            self.assertTrue(seen or not over)
            for word, name in over:
                self.assertEqual(seen["checks"][name]["result"], {"skipped:": "skip"}.get(word, word), name)
            others = {name: check["why"] for name, check in (seen["checks"] if seen else {}).items() if (name not in [one for _, one in over])}
            self.assertLessEqual(len(others), 2 + 1)  # one may be over and not printed yet
            for name, why in others.items():
                self.assertTrue(why == runner.CUT_OFF or results.ran(seen["checks"][name]) or seen["checks"][name]["result"] == "skip", name)

    def test_a_check_that_has_begun_is_written_with_its_numbers(self):
        """So that a run that is killed says what ran."""
        seen = []

        def look(bench):
            seen.append(self.archived()["checks"]["looks"])
            bench.note({"pairs": 3})
            seen.append(self.archived()["checks"]["looks"])

        packed = archive.Archive(self.out / archive.NAME, self.out / "work")
        writer = results.Writer(packed.folder, "GPU", "commit", {"date": "2026-01-01"}, packed)
        with contextlib.redirect_stdout(io.StringIO()):
            code = runner.Runner(writer, self.bench, time.monotonic() + 60).run([Check("looks", 1, look, False)])
        self.assertEqual((code, self.archived()["checks"]["looks"]["result"]), (0, "pass"))
        self.assertEqual([(one["result"], one["why"], one["numbers"]) for one in seen],
                         [("not run", runner.CUT_OFF, {}), ("not run", runner.CUT_OFF, {"pairs": 3})])

    def test_a_check_is_killed_at_its_limit_and_keeps_its_numbers(self):
        def hangs(bench):
            bench.note({"pairs": 3})
            bench.run([sys.executable, "-c", "import time; time.sleep(1000)"], timeout=900)

        bench = self.bench()
        threading.Timer(0.3, bench.stop, ["it was stopped at its limit"]).start()
        ended = runner.run_check(bench, Check("hangs", 1, hangs, False))
        self.assertEqual((ended["result"], ended["why"], ended["numbers"]), ("not run", "it was stopped at its limit", {"pairs": 3}))
        self.assertRaises(Late, bench.run, ["true"])  # nothing starts any more


@unittest.skipUnless(WHERE == "--fake", "")
class TheStep(unittest.TestCase):
    def test_our_kernels_are_told_by_grid_with_the_gap_before_them(self):
        with unittest.mock.patch.object(sys, "path", [str(SOURCE / "tests" / "gpu" / "workloads"), *sys.path]):
            import step_kernels
        events = [{"name": name, "ts": ts, "dur": dur, "args": {"grid": [grid, 1, 1]}} for name, ts, dur, grid in (
            ("gemm", 0, 10, 4), ("convtrace_stats", 12, 5, 8), ("gemm", 17, 3, 4), ("convtrace_stats", 26, 9, 8), ("convtrace_stats", 36, 1, 9))]
        self.assertEqual(step_kernels.rows(events), [
            {"kernel": "convtrace_stats", "grid": (8, 1, 1), "launches": 2, "us": 9, "sum_us": 14, "gap_us": 6},
            {"kernel": "convtrace_stats", "grid": (9, 1, 1), "launches": 1, "us": 1, "sum_us": 1, "gap_us": 1}])


@unittest.skipUnless(WHERE == "--fake", "")
class TheArchive(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "work"
        self.path = pathlib.Path(folder.name) / "out" / archive.NAME
        (self.folder / "failed" / "a").mkdir(parents=True)

    def test_it_is_below_its_limit_and_names_the_largest_files_that_it_leaves_out(self):
        made = random.Random(7)
        sizes = {"small.ctrace": 100, "failed/a/large.ctrace": 700_000, "other.ctrace": 600_000, "results.json": 10}
        for name, size in sizes.items():
            (self.folder / name).write_bytes(made.randbytes(size))
        packed = archive.Archive(self.path, self.folder, most_bytes=1 << 20)
        for _ in range(2):
            packed.refresh()
            self.assertLessEqual(self.path.stat().st_size, 1 << 20)
            with tarfile.open(self.path) as tar:
                self.assertEqual(set(tar.getnames()), {"small.ctrace", "other.ctrace", "results.json", archive.LEFT_OUT})
                self.assertEqual(tar.extractfile(archive.LEFT_OUT).read(), b"failed/a/large.ctrace 700000 bytes\n")
                self.assertEqual(tar.extractfile("other.ctrace").read(), (self.folder / "other.ctrace").read_bytes())
        done = subprocess.run(["tar", "tzf", str(self.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, len(done.stdout.split())), (0, 4), done.stderr)

    def test_what_changes_is_packed_anew_and_comes_back(self):
        packed = archive.Archive(self.path, self.folder)
        for text in "one", "two":
            (self.folder / "failed" / "a" / "said.txt").write_text(text)
            packed.refresh()
            target = self.path.parent / text
            archive.unpack(self.path, target)
            self.assertEqual((target / "failed" / "a" / "said.txt").read_text(), text)
        self.assertLess(self.path.stat().st_size, 1000)
        self.assertEqual([path.name for path in self.path.parent.glob("*.gz*")], [archive.NAME])

    def test_a_name_that_leads_out_is_not_unpacked(self):
        self.path.parent.mkdir()
        self.path.write_bytes(archive.member("../outside", b"x") + archive.END)
        archive.unpack(self.path, self.folder)
        self.assertFalse((self.folder.parent / "outside").exists())


@unittest.skipUnless(WHERE == "--cpu", "")
class OnTheCpu(GpuCheck):
    def test_the_workloads_do_what_the_checks_expect_of_them(self):
        for part in PARTS:
            done, seen = self.check("--device", "cpu", "--part", str(part), "--within", "1500", device=False)
            self.assertIn(done.returncode, (0, 3), done.stdout)
        self.assertEqual(seen["device"], "no GPU")
        passed = {name for name, check in seen["checks"].items() if check["result"] == "pass"}
        self.assertLessEqual({"bug: forward", "bug: late", "correct: dlpack", "every faulty op", "every correct program",
                              "memory that is still needed", "memory that only its owner needs",
                              "two ranks, one faulty", "faulty ops in C++", "gpt", "attention", "lstm", "checkpointed",
                              "distributed", "compiled", "GPT-like step", "GPT-like step in bf16", "kernels in a bf16 step",
                              "two runs compared: stats", "two runs compared: snapshot", "two runs compared: hash",
                              "interrupt", "end: os_exit", "kill -9",
                              "against torch in float64"}, passed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
