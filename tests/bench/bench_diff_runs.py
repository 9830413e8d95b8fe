"""convtrace-diff as a program, on traces that make_compared_runs writes: rows diff.events_per_s, diff.vs_git,
diff.prefix_bytes, diff.rss_1e8, diff.seconds_1e8, diff.html_100k and diff.html_bytes, JSON on stdout.

usage: bench_diff_runs.py [--quick]

The traces lie in the page cache. Every value of the candidate differs from some step on, so that from there on all of
both is read. Time is that of the whole command, its start and the opening of the traces included.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin"
DIFF = PROGRAMS / "convtrace-diff"
CORES = min(4, os.cpu_count())
EVENTS_PER_STEP, VALUES_PER_STEP = 2641, 150
WHAT = "1500 launches, 990 allocations and frees, 150 values a step; every value differs"


class Runs:
    """Two traces in `folder`, which part at step `parts`."""

    def __init__(self, folder, steps, parts, text=False):
        self.base, self.cand = os.path.join(folder, "base.ctrace"), os.path.join(folder, "cand.ctrace")
        words = [PROGRAMS / "make_compared_runs", self.base, self.cand, str(steps), str(parts)] + ["text"] * text
        self.counts = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)

    def bytes(self):
        return os.path.getsize(self.base) + os.path.getsize(self.cand)

    def compare(self, *options):
        """Seconds, MiB of memory at most, bytes read. The runs differ by rounding, which --exact off lets pass."""
        return measured([DIFF, self.base, self.cand, "--exact", "off", *options], 0)


def measured(words, expect):
    begun = time.perf_counter()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    seconds = time.perf_counter() - begun
    with open(f"/proc/{child.pid}/io") as file:  # it ended, but still says what it did
        read = int(file.readline().split()[1])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == expect, (words, child.returncode)
    return seconds, usage.ru_maxrss / 1024, read


def row(name, unit, goal, against, samples):
    value = statistics.median(samples)
    quarters = statistics.quantiles(samples, n=4) if len(samples) > 1 else [value] * 3
    sign, limit = goal.split()
    ok = value <= float(limit) if sign == "<=" else value >= float(limit)
    return dict(name=name, value=value, unit=unit, goal=goal, against=against, ok=ok,
                spread=(quarters[2] - quarters[0]) / value)


def missing(name, why):
    return dict(name=name, value=None, unit=None, goal=None, against=None, ok=None, spread=None, why=why)


def throughput(folder, pairs):
    """Both read all of the runs: no step is equal. Git gets only what is compared, without times and addresses."""
    runs = Runs(folder, 1000, 0, text=True)
    git = ["git", "diff", "--no-index", "--no-color", runs.base + ".txt", runs.cand + ".txt"]
    speeds, factors = [], []
    for i in range(pairs):
        both = [lambda: runs.compare()[0], lambda: measured(git, 1)[0]]
        ours, theirs = (both[0](), both[1]()) if i % 2 == 0 else reversed((both[1](), both[0]()))
        speeds.append(runs.counts["events"] / ours / CORES * 1e-6)
        factors.append(theirs / ours)
    return [row("diff.events_per_s", "Mpairs/s", ">= 10", f"each of {CORES} cores; {WHAT}", speeds),
            row("diff.vs_git", "factor", ">= 10", "git diff --no-index, a line for each launch and value", factors)]


def prefix(folder):
    """The runs part in the last of 1000 steps."""
    runs = Runs(folder, 1000, 999)
    return [row("diff.prefix_bytes", "fraction", "<= 0.02", "both files; they part in the last of 1000 steps",
                [runs.compare()[2] / runs.bytes() for _ in range(3)])]


def page(folder, repetitions):
    path = os.path.join(folder, "report.html")
    runs = Runs(folder, 100_000 // VALUES_PER_STEP + 1, 0)
    seconds = [runs.compare("--html", path)[0] for _ in range(repetitions)]
    what = f"{runs.counts['values']} values, all of them differ"
    return [row("diff.html_100k", "s", "<= 2", "comparing and writing; " + what, seconds),
            row("diff.html_bytes", "MB", "<= 5", what, [os.path.getsize(path) * 1e-6])]


def large(folder, quick):
    names = "diff.seconds_1e8", "diff.rss_1e8"
    if quick:
        return [missing(name, "two traces of 1e8 events take a minute to write; not under --quick") for name in names]
    runs = Runs(folder, 100_000_000 // EVENTS_PER_STEP + 1, 0)
    assert runs.counts["events"] >= 100_000_000
    samples = [runs.compare() for _ in range(5)]
    return [row(names[0], "s", "<= 6", f"{CORES} cores; {WHAT}", [seconds for seconds, _, _ in samples]),
            row(names[1], "MiB", "<= 1024", WHAT, [mib for _, mib, _ in samples])]


def main():
    quick = "--quick" in sys.argv[1:]
    rows = []
    for part in (lambda f: throughput(f, 15), prefix, lambda f: page(f, 5), lambda f: large(f, quick)):
        with tempfile.TemporaryDirectory() as folder:
            rows += part(folder)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
