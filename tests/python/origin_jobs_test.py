"""`convtrace origin` over simulated jobs with known faults: how often it names the rank and the step, and that it
finds nothing in jobs without a fault.

    origin_jobs_test.py [CLASS]                          a small sample, as a test
    origin_jobs_test.py --full [--program convtrace]     200 jobs with a fault and 200 without, and a table
    origin_jobs_test.py --faulty 20 --clean 5 --kind flip --keep FOLDER

Job N of a sample is the same in every run: its seed is its number."""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("CONVTRACE_BUILD") or os.path.join(ROOT, "build", "release")
SIMULATE = os.path.join(BUILD, "bin", "simulate_job")
KINDS = ("nan", "scale", "lost", "flip", "skip", "swap", "stale")
LEAST_NAMED = 0.95
FOUND, NONE = 4, 0  # exit codes


class Job:
    """A job that is drawn at random for a number. `kind`: that of its fault; None: it has no fault."""

    def __init__(self, number, kind):
        draw = random.Random("%d %s" % (number, kind))
        while True:
            self.data, self.tensor, self.stages = draw.randint(2, 8), draw.choice((1, 1, 2, 4, 8)), draw.choice((1, 1, 2, 4))
            self.ranks = self.data * self.tensor * self.stages
            if self.ranks <= 64:
                break
        self.number, self.kind = number, kind
        self.steps = draw.randint(3, 6)
        self.rank, self.step = draw.randrange(self.ranks), draw.randrange(self.steps)
        self.elements = draw.choice((64, 100, 256, 1024) if self.ranks > 16 else (64, 100, 256, 1024, 4096))
        self.types = draw.choice(("mixed", "f32", "bf16"))
        self.micro = draw.randint(1, 3)
        self.sharded = draw.random() < 0.2
        self.collectives = draw.choice((0, 0, 30, 60))

    def arguments(self, folder):
        sizes = {"ranks": self.ranks, "dp": self.data, "tp": self.tensor, "pp": self.stages, "steps": self.steps,
                 "elements": self.elements, "types": self.types, "micro-batches": self.micro, "seed": self.number,
                 "threads": 1, "output": folder}
        if self.collectives:
            sizes["collectives"] = self.collectives
        arguments = [word for name, value in sizes.items() for word in ("--" + name, str(value))]
        arguments += ["--sharded"] * self.sharded
        if self.kind is not None:
            arguments += ["--origin", "%d:%d" % (self.rank, self.step), "--kind", self.kind]
        return arguments


class Outcome:
    """The program's verdict on a job: `named`, `suspected` (the rank is among several), `missed`, `other` (another
    place first), `clean`, `false alarm`, `failed`."""

    def __init__(self, job, word, planted="", said=""):
        self.job, self.word, self.planted, self.said = job, word, planted, said

    def __str__(self):
        return "%s %d: %s\n  planted: %s\n  said: %s\n  simulate_job %s" % (
            self.job.kind or "clean", self.job.number, self.word, self.planted or "nothing", self.said,
            " ".join(self.job.arguments("DIR")))


def judged(job, program, keep=None):
    folder = tempfile.mkdtemp(prefix="origin-job-", dir=keep)
    traces, report = os.path.join(folder, "job"), os.path.join(folder, "origin.json")
    try:
        made = subprocess.run([SIMULATE, *job.arguments(traces)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=300)
        if made.returncode != 0:
            return Outcome(job, "failed", said=made.stdout)
        planted = "; ".join(made.stdout.splitlines()[1:])
        done = subprocess.run([program, "origin", traces, "--json", report], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)
        if done.returncode not in (FOUND, NONE) or not os.path.exists(report):
            return Outcome(job, "failed", planted, "exit %d: %s" % (done.returncode, done.stdout[-400:]))
        with open(report, encoding="utf-8") as file:
            origins = json.load(file)["origins"]
        return Outcome(job, word_of(job, origins, done.returncode), planted, first_of(origins))
    finally:
        if keep is None:
            shutil.rmtree(folder)


def word_of(job, origins, status):
    if (status == FOUND) != bool(origins):
        return "failed"
    if job.kind is None:
        return "false alarm" if origins else "clean"
    if not origins:
        return "missed"
    first = origins[0]
    if first["step"] != job.step:
        return "other"
    if first["rank"] == job.rank:
        return "named"
    return "suspected" if first["rank"] is None and job.rank in (first.get("suspects") or ()) else "other"


def first_of(origins):
    if not origins:
        return "nothing"
    one = origins[0]
    return "%d origins; first: rank %s (suspects %s), step %s, %s: %s" % (
        len(origins), one["rank"], one.get("suspects"), one["step"], one["kind"], one["text"])


def sample(faulty, clean, kinds=KINDS):
    """@return the jobs numbered from 1, kinds in turn."""
    return [Job(i + 1, kinds[i % len(kinds)]) for i in range(faulty)] + [Job(i + 1, None) for i in range(clean)]


def run(jobs, program, keep=None, workers=2):
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda job: judged(job, program, keep), jobs))


def table(outcomes):
    counts = collections.Counter((one.job.kind or "clean", one.word) for one in outcomes)
    words = [word for word in ("named", "suspected", "other", "missed", "clean", "false alarm", "failed")
             if any(key[1] == word for key in counts)]
    lines = ["%-8s" % "kind" + "".join("%12s" % word for word in words)]
    for kind in (*KINDS, "clean"):
        if any(key[0] == kind for key in counts):
            lines.append("%-8s" % kind + "".join("%12d" % counts[kind, word] for word in words))
    return "\n".join(lines)


def told(outcomes):
    """@return the table, and each job with a wrong verdict."""
    return "\n".join([table(outcomes), *(str(one) for one in outcomes if one.word not in ("named", "clean"))])


def share_named(outcomes):
    faulty = [one for one in outcomes if one.job.kind is not None]
    return sum(one.word == "named" for one in faulty) / len(faulty) if faulty else 1.0


def program():
    return os.environ.get("CONVTRACE_PROGRAM") or os.path.join(BUILD, "bin", "convtrace")


def missing():
    """@return the reason if a program under test is missing, else ""."""
    if not os.path.exists(SIMULATE):
        return "%s is not built" % SIMULATE
    helped = subprocess.run([program(), "--help"], stdout=subprocess.PIPE, text=True).stdout
    return "" if any(line.split()[:1] == ["origin"] for line in helped.splitlines()) else "convtrace has no command origin"


class Sample(unittest.TestCase):
    """Four jobs of each kind and twelve without a fault."""

    def test_faults_are_named(self):
        outcomes = run(sample(4 * len(KINDS), 0), program())
        self.assertGreaterEqual(share_named(outcomes), LEAST_NAMED, told(outcomes))

    def test_nothing_is_found_where_nothing_went_wrong(self):
        outcomes = run(sample(0, 12), program())
        self.assertEqual({one.word for one in outcomes}, {"clean"}, told(outcomes))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--faulty", type=int)
    parser.add_argument("--clean", type=int)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--program", help="the program convtrace")
    parser.add_argument("--keep", help="a folder in which the traces stay")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("classes", nargs="*")
    args = parser.parse_args()
    if args.program:
        os.environ["CONVTRACE_PROGRAM"] = args.program
    why = missing()
    if why:
        print("skipped: " + why)
        return 77
    if not (args.full or args.faulty or args.clean):
        unittest.main(argv=[sys.argv[0], *args.classes])
    default = 200 if args.full else 0
    faulty = default if args.faulty is None else args.faulty
    clean = default if args.clean is None else args.clean
    outcomes = run(sample(faulty, clean, tuple(args.kind or KINDS)), program(), args.keep, args.workers)
    print(told(outcomes))
    print("named: %.1f %% of %d; false alarms: %d of %d" % (
        100 * share_named(outcomes), faulty, sum(one.word == "false alarm" for one in outcomes), clean))
    wrong = any(one.word in ("false alarm", "failed") for one in outcomes)
    return int(wrong or share_named(outcomes) < LEAST_NAMED)


if __name__ == "__main__":
    sys.exit(main())
