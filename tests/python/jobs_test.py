"""`python -m convtrace.jobs` beside the programs whose work it spreads: the same JSON and exit codes, on DuckDB and on Spark."""
import contextlib
import glob
import copy
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import origin_jobs_test as made_up

ROOT = made_up.ROOT
BUILD = made_up.BUILD
PACKAGE = os.path.join(BUILD, "share", "convtrace", "python")
sys.path.insert(0, PACKAGE)

try:
    import pyarrow  # noqa: F401 - all of the package needs it
except ModuleNotFoundError:
    print("skipped: %s lacks pyarrow" % sys.executable)
    sys.exit(77)
try:
    import duckdb
except ModuleNotFoundError:
    duckdb = None
try:
    import pyspark
except ModuleNotFoundError:
    pyspark = None
SPARK = pyspark is not None and shutil.which("java") is not None


def program(name):
    return os.path.join(BUILD, "bin", name)


def simulated(job, folder):
    subprocess.run([made_up.SIMULATE, *job.arguments(folder)], stdout=subprocess.DEVNULL, check=True, timeout=300)
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".ctrace"))


def small_job(kind, number=1):
    """A job of 8 ranks."""
    job = made_up.Job(number, kind)
    job.data, job.tensor, job.stages, job.ranks, job.steps, job.elements = 4, 2, 1, 8, 4, 64
    job.rank, job.step, job.collectives = 3, 2, 0
    return job


def flip_byte(path, share=0.5):
    with open(path, "r+b") as file:
        place = int(os.path.getsize(path) * share)
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))


def _without_updates(report):
    """@return the steps without the size of the updates, which is known where the step before was read."""
    return [{key: value for key, value in row.items() if key != "update_norm"} for row in report["per_step"]]


class JobsTest(unittest.TestCase):
    """The common part of the tests of both engines."""
    engine = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="jobs-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.job = os.path.join(self.folder, "job")
        self.output = os.path.join(self.folder, "output")

    def one(self, name, *arguments):
        """@return (exit code, JSON as text) of a program."""
        report = os.path.join(self.folder, "one.json")
        if os.path.exists(report):
            os.unlink(report)
        done = subprocess.run([program(name), *arguments, "--json", report], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              check=False, timeout=300)
        return done.returncode, self.text(report)

    def spread(self, command, *arguments):
        """Runs the module in this process, with its stderr in `self.said`. @return the same as one()"""
        from convtrace.jobs import __main__ as jobs

        report = os.path.join(self.folder, "spread.json")
        if os.path.exists(report):
            os.unlink(report)
        said = io.StringIO()
        out = os.dup(1)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(said):
            os.dup2(nowhere.fileno(), 1)
            try:
                code = jobs.main([command, "--engine", self.engine, *self.engine_arguments(), "--json", report, *arguments])
            finally:
                os.dup2(out, 1)
                os.close(out)
        self.said = said.getvalue()
        return code, self.text(report)

    def engine_arguments(self):
        return ["--output", self.output]

    @staticmethod
    def text(path):
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()

    def check_origin(self, *arguments, expect=None):
        alone = self.one("convtrace", "origin", *arguments)
        self.assertEqual(self.spread("origin", *arguments), alone)
        if expect is not None:
            self.assertEqual(alone[0], expect)
        return json.loads(alone[1]) if alone[1] else None

    def check_diff(self, *arguments, expect=None, left_out=None):
        """@param left_out  ranks that are not compared with others of their run. The reports differ in `replicas`, and in the rows of
        steps that were not read."""
        code, alone = self.one("convtrace-diff", *arguments)
        spread_code, spread = self.spread("diff", *arguments)
        self.assertEqual(spread_code, code)
        if expect is not None:
            self.assertEqual(code, expect)
        if alone is None:
            self.assertIsNone(spread)
            return None
        report, narrowed = json.loads(alone), json.loads(spread)
        if left_out is not None:
            self.assertEqual(narrowed["ranks_by_sums"], left_out)
        if narrowed["ranks_by_sums"] == 0:
            self.assertEqual(spread, alone)
            return report
        self.assertEqual([row for row in _without_updates(narrowed) if row not in _without_updates(report)], [])
        unread = [row for row in report["per_step"] if row not in narrowed["per_step"]]
        self.assertEqual({row["class"] for row in unread}, {"identical"})
        alike = dict.fromkeys(("ranks_by_sums", "replicas", "per_step"))
        self.assertEqual({**narrowed, **alike}, {**report, **alike})
        return report


@unittest.skipUnless(duckdb, "no duckdb")
class OriginOnDuckDb(JobsTest):
    engine = "duckdb"

    def test_all_kinds_of_faults_and_clean_jobs(self):
        codes = []
        for job in made_up.sample(len(made_up.KINDS), 2):
            with self.subTest(str(job.kind), number=job.number):
                simulated(job, self.job)
                self.check_origin(self.job)
                codes.append(self.one("convtrace", "origin", self.job)[0])
                shutil.rmtree(self.job)
        self.assertEqual(set(codes), {0, 4})

    def test_missing_damaged_unclosed_and_foreign_traces(self):
        traces = simulated(small_job("lost"), self.job)
        os.unlink(traces[6])
        flip_byte(traces[1])
        with open(traces[4], "r+b") as file:
            file.truncate(os.path.getsize(traces[4]) // 2)
        with open(os.path.join(self.job, "zz.ctrace"), "w") as file:
            file.write("no trace")
        shutil.copy(traces[0], os.path.join(self.job, "again.ctrace"))  # rank 0, started again
        report = self.check_origin(self.job)
        self.assertEqual(len(report["incomplete"]), 3)
        self.assertTrue(any("further trace of rank 0" in note for note in report["notes"]))
        self.assertTrue(any("rank 6" in note for note in report["notes"]))

    def test_what_cannot_be_read(self):
        traces = simulated(small_job(None), self.job)
        os.mkdir(os.path.join(self.folder, "empty"))
        self.check_origin(os.path.join(self.folder, "empty"), expect=2)
        self.check_origin(os.path.join(self.folder, "missing"), expect=2)
        self.check_origin(self.job, os.path.join(self.folder, "missing"), expect=2)
        self.check_origin(*traces, expect=0)

    def test_twice_gives_the_same(self):
        simulated(small_job("stale"), self.job)
        first = self.spread("origin", self.job)
        traces = sorted(os.listdir(self.job))
        os.unlink(os.path.join(self.job, [name for name in traces if name.endswith(".ctrace")][-1]))
        self.check_origin(self.job)  # nothing is left of the larger job before
        shutil.rmtree(self.job)
        simulated(small_job("stale"), self.job)
        self.assertEqual(self.spread("origin", self.job), first)
        self.assertEqual(self.spread("origin", self.job), first)

    def test_traces_by_url(self):
        simulated(small_job("nan"), self.job)
        code, report = self.one("convtrace", "origin", self.job)
        spread_code, spread = self.spread("origin", "file://" + self.job)
        self.assertEqual((spread_code, spread.replace("file://", "")), (code, report))

    def test_a_program_that_dies_is_tried_again_and_told(self):
        traces = simulated(small_job("nan"), self.job)
        whole = self.spread("origin", self.job)
        marks = os.path.join(self.folder, "marks")
        os.mkdir(marks)
        killed = self.dying_program(traces[5], marks, 2)
        with mock.patch("convtrace.tree.program", lambda name: killed if name == "convtrace" else name):
            self.assertEqual(self.spread("origin", self.job), whole)
            self.assertEqual(self.said, "")
        killed = self.dying_program(traces[5], marks, 1000)  # written before tasks start it
        with mock.patch("convtrace.tree.program", lambda name: killed if name == "convtrace" else name):
            self.assertEqual(self.spread("origin", self.job), whole)
        self.assertIn(traces[5] + ": the task that reads it has failed: convtrace: SIGKILL", self.said)
        problems = duckdb.sql("SELECT path FROM read_parquet('%s/traces/*.parquet') WHERE problem IS NOT NULL" % self.output).fetchall()
        self.assertEqual(problems, [(traces[5],)])

    def dying_program(self, trace, marks, times):
        """@return the path of a program that kills itself the first `times` times that it is to read a trace."""
        path = os.path.join(self.folder, "convtrace")
        with open(path, "w") as file:
            file.write('#!/bin/sh\nif [ "$3" = "%s" ] && [ "$(ls %s | wc -l)" -lt %d ]; then touch "%s/$$"; kill -9 $$; fi\nexec %s "$@"\n'
                       % (trace, marks, times, marks, program("convtrace")))
        os.chmod(path, 0o755)
        return path

    def test_an_output_that_is_somebody_elses(self):
        traces = simulated(small_job("nan"), self.job)
        self.assertEqual(self.spread("origin", "--output", self.job, self.job), (2, None))
        self.assertIn("CT-2104", self.said)
        self.assertEqual([os.path.isfile(trace) for trace in traces], [True] * len(traces))
        mine = os.path.join(self.folder, "mine", "traces")
        shutil.copytree(self.job, mine)
        self.assertEqual(self.spread("origin", "--output", os.path.dirname(mine), mine), (2, None))
        self.assertEqual(sorted(os.listdir(mine)), sorted(os.listdir(self.job)))
        for name in ("odd[1]", "a*"):
            self.assertEqual(self.spread("origin", "--output", os.path.join(self.folder, name), self.job), (2, None))
        self.assertEqual(self.spread("origin", "--output", traces[0], self.job), (2, None))

    def test_one_job_at_a_time(self):
        from convtrace.jobs import places

        simulated(small_job("nan"), self.job)
        with places.output(self.output):
            self.assertEqual(self.spread("origin", self.job), (2, None))
            self.assertIn("another job", self.said)
        self.check_origin(self.job, expect=4)

    def test_an_output_that_looks_like_a_partition(self):
        simulated(small_job("scale"), self.job)
        for name in ("step=5", "hash=1", "trace=2"):
            self.output = os.path.join(self.folder, name, "out")
            self.check_origin(self.job, expect=4)

    def test_what_fails_is_usage_and_never_a_verdict(self):
        simulated(small_job("nan"), self.job)
        self.assertEqual(self.spread("diff", "foo://nowhere/base", self.job), (2, None))
        self.assertTrue(self.said.startswith("convtrace: CT-2001 "), self.said)
        with self.assertRaises(SystemExit) as usage:
            self.spread("origin", "--workers", "0", self.job)
        self.assertEqual(usage.exception.code, 2)

    def test_a_folder_with_one_trace_and_something_else(self):
        for name in ("base", "cand"):
            folder = os.path.join(self.folder, name)
            simulated(small_job("nan"), folder)
            for trace in sorted(glob.glob(os.path.join(folder, "*.ctrace")))[1:]:
                os.unlink(trace)
        cut = glob.glob(os.path.join(self.folder, "cand", "*.ctrace"))[0]
        os.truncate(cut, os.path.getsize(cut) * 3 // 4)
        with open(os.path.join(self.folder, "base", "zz.ctrace"), "w") as file:
            file.write("none")
        self.check_diff(os.path.join(self.folder, "base"), os.path.join(self.folder, "cand"))

    def test_tables_for_queries(self):
        simulated(small_job("nan"), self.job)
        report = self.check_origin(self.job)
        self.assertEqual(duckdb.sql("SELECT rank, state FROM read_parquet('%s/traces/*.parquet') ORDER BY rank" % self.output).fetchall(),
                         [(rank, "complete") for rank in range(8)])
        steps = duckdb.sql("SELECT rank, step FROM read_parquet('%s/steps/*.parquet') ORDER BY rank, step" % self.output).fetchall()
        self.assertEqual(steps, [(rank, step) for rank in range(8) for step in range(report["steps"])])


@unittest.skipUnless(duckdb, "no duckdb")
class DiffOnDuckDb(JobsTest):
    engine = "duckdb"

    def runs(self, kind):
        base, cand = os.path.join(self.folder, "base"), os.path.join(self.folder, "cand")
        job = small_job(kind)
        clean = copy.copy(job)
        clean.kind = None
        for folder in (base, cand):
            shutil.rmtree(folder, ignore_errors=True)
        return base, cand, simulated(clean, base), simulated(job, cand)

    def test_all_kinds_of_faults_and_clean_jobs(self):
        codes = set()
        for kind in (*made_up.KINDS, None):
            with self.subTest(str(kind)):
                base, cand, _, _ = self.runs(kind)
                self.check_diff(base, cand)
                codes.add(self.one("convtrace-diff", base, cand)[0])
        self.assertLessEqual({0, 1}, codes)

    def test_missing_damaged_and_foreign_traces(self):
        base, cand, base_traces, traces = self.runs(None)
        os.unlink(traces[6])
        os.unlink(base_traces[7])
        flip_byte(traces[1])
        with open(traces[4], "r+b") as file:
            file.truncate(os.path.getsize(traces[4]) // 2)
        with open(os.path.join(cand, "zz.ctrace"), "w") as file:
            file.write("no trace")
        report = self.check_diff(base, cand)
        self.assertGreaterEqual(len(report["incomplete_why"]), 4)
        self.check_diff(base, cand, "--allow-incomplete")

    def test_rules_go_to_all_ranks(self):
        base, cand, _, _ = self.runs("scale")
        for rules in (["--exact=off"], ["--exact=on"], ["--tol=*=100"], ["--ignore=*"], ["--step-offset=1"]):
            with self.subTest(rules):
                self.check_diff(base, cand, *rules)

    def test_unlike_layouts(self):
        base, cand, _, _ = self.runs(None)
        shutil.rmtree(cand)
        job = small_job(None)
        job.data, job.ranks = 2, 4
        simulated(job, cand)
        report = self.check_diff(base, cand)
        self.assertIsNotNone(report["layouts"])
        self.check_diff(base, cand, "--layouts=ranks")
        code, spread = self.spread("diff", "file://" + base, "file://" + cand)
        self.assertEqual((code, spread.replace("file://", "")), self.one("convtrace-diff", base, cand))

    def test_single_traces(self):
        _, _, base, cand = self.runs("flip")
        self.check_diff(base[3], cand[3])
        self.check_diff(base[3], cand[2])

    def test_ranks_that_are_equal_are_not_read_in_full(self):
        base, cand, traces, faulty = self.runs("stale")
        report = self.check_diff(base, cand, expect=1, left_out=0)
        rows = duckdb.sql("SELECT rank, first_step FROM read_parquet('%s/differences/*.parquet') ORDER BY rank" % self.output).fetchall()
        self.assertEqual([row[0] for row in rows], list(range(8)))
        self.assertIn((report["root"]["rank"], report["root"]["step"]), rows)
        for rank in (0, 1, 2, 4, 6, 7):
            shutil.copy(traces[rank], faulty[rank])
        self.assertIn(self.check_diff(base, cand, expect=1, left_out=6)["root"]["rank"], (3, 5))
        for rank in (3, 5):
            shutil.copy(traces[rank], faulty[rank])
        self.check_diff(base, cand, expect=0, left_out=7)

    def test_what_cannot_be_read(self):
        base, _, _, _ = self.runs(None)
        self.check_diff(base, os.path.join(self.folder, "missing"), expect=2)

    def test_a_task_that_dies_is_told(self):
        base, cand, _, traces = self.runs("stale")
        shutil.copy(os.path.join(base, os.path.basename(traces[4])), traces[4])
        whole = self.one("convtrace-diff", base, cand)
        path = os.path.join(self.folder, "convtrace")
        with open(path, "w") as file:
            file.write('#!/bin/sh\ncase "$*" in info*%s) kill -9 $$;; esac\nexec %s "$@"\n' % (traces[2], program("convtrace")))
        os.chmod(path, 0o755)
        with mock.patch("convtrace.tree.program", lambda name: path if name == "convtrace" else program(name)):
            self.assertEqual(self.spread("diff", base, cand), whole)
        self.assertIn("SIGKILL", self.said)


class SparkTest(JobsTest):
    engine = "spark"

    @classmethod
    def setUpClass(cls):
        os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1"  # most of the time of a small job goes to the compiler

    def check_on_spark(self):
        traces = simulated(small_job("nan"), self.job)
        flip_byte(traces[1])
        os.unlink(traces[6])
        self.check_origin(self.job, expect=4)
        clean = os.path.join(self.folder, "clean")
        simulated(small_job(None), clean)
        self.check_diff(clean, self.job)


@unittest.skipUnless(SPARK, "no pyspark or no java")
class OnSpark(SparkTest):
    def engine_arguments(self):
        return ["--master", "local[2]", *super().engine_arguments()]

    def test_local_mode(self):
        self.check_on_spark()

    def test_a_worker_that_dies_takes_no_other_task_with_it(self):
        from convtrace.jobs import engines

        engine = engines.Spark(master="local[2]")
        self.addCleanup(engine.close)
        first, second, third = engine.each(die_or_double, [1, -signal.SIGKILL, 3])
        self.assertEqual((first, third), (2, 6))
        self.assertIsInstance(second, Exception)


def die_or_double(number):
    if number < 0:
        os.kill(os.getpid(), -number)
    return 2 * number


@unittest.skipUnless(SPARK, "no pyspark or no java")
class OnACluster(SparkTest):
    """A master and two workers, as processes of this machine."""

    def engine_arguments(self):
        return ["--master", self.master, *super().engine_arguments()]

    def start(self, log, *arguments):
        file = open(os.path.join(self.folder, log), "w")
        self.addCleanup(file.close)
        environment = dict(os.environ, SPARK_WORKER_DIR=os.path.join(self.folder, "work"), SPARK_LOCAL_IP="127.0.0.1",
                           PYSPARK_PYTHON=sys.executable)
        script = os.path.join(os.path.dirname(pyspark.__file__), "bin", "spark-class")
        process = subprocess.Popen([script, *arguments], stdout=file, stderr=subprocess.STDOUT, env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return os.path.join(self.folder, log)

    def wait_for(self, log, text, times=1):
        for _ in range(600):
            with open(log, encoding="utf-8") as file:
                if file.read().count(text) >= times:
                    return
            time.sleep(0.1)
        self.fail("no %r in %s" % (text, self.text(log)))

    def setUp(self):
        super().setUp()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.master = "spark://127.0.0.1:%d" % port
        name = "org.apache.spark.deploy."
        log = self.start("master.log", name + "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        self.wait_for(log, "Starting Spark master")
        for number in range(2):
            self.start("worker%d.log" % number, name + "worker.Worker", "--cores", "1", "--memory", "1g", "--host", "127.0.0.1",
                       "--webui-port", "0", self.master)
        self.wait_for(log, "Registering worker", 2)

    def test_two_workers(self):
        with mock.patch.dict(os.environ, {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}):
            self.check_on_spark()
        executors = {name for _, folders, _ in os.walk(os.path.join(self.folder, "work")) for name in folders if name.isdigit()}
        self.assertGreaterEqual(executors, {"0", "1"})


if __name__ == "__main__":
    unittest.main()
