"""Runs the checks of a part within its time, several at once but those that want to be alone; each is written when it
is over."""
import concurrent.futures
import math
import os
import pathlib
import signal
import threading
import time
import traceback

from . import processes
from .bench import Failure, Skip

HERE = str(pathlib.Path(__file__).parent) + os.sep
LAST_START = 30  # seconds before the end: two imports of PyTorch take half of that on a machine that has not run it yet


def result(result, why="", numbers=None, seconds=0.0):
    return {"result": result, "why": why, "numbers": numbers or {}, "seconds": round(seconds, 2)}


def run_check(bench, check):
    """@return how the check ended, as results.py keeps it."""
    ended, why, start = "pass", "", time.monotonic()
    try:
        bench.note(check.run(bench) or {})
    except Skip as skip:
        ended, why = "skip", str(skip)
    except Failure as failure:
        ended, why = "fail", str(failure)
    except Exception:  # a fault of the check itself must not hide what the others say
        ended, why = "fail", traceback.format_exc(limit=-3).replace(HERE, "")  # results are published
    numbers = {key: value if not isinstance(value, float) or math.isfinite(value) else str(value)  # JSON has no NaN
               for key, value in bench.numbers.items()}
    return result(ended, why, numbers, time.monotonic() - start)


class Runner:
    """One run. `end`: the time.monotonic() at which what still runs is killed, by a signal to this process. `ended`:
    results of checks that a run before had, which count for the exit code."""

    def __init__(self, writer, make_bench, end, ended=()):
        self.writer, self.make_bench, self.end = writer, make_bench, end
        self.waiting = {}  # by name, the checks that have not ended
        self.ended = list(ended)
        self.lock = threading.RLock()  # one thread at a time writes; the signal comes to the one that may have it

    def run(self, checks):
        """@return the exit code; it may end the process instead."""
        self.waiting = {check.name: check for check in checks}
        signal.signal(signal.SIGALRM, self.time_over)
        signal.setitimer(signal.ITIMER_REAL, max(self.end - time.monotonic(), 0.001))
        for alone in (False, True):
            with concurrent.futures.ThreadPoolExecutor(1 if alone else workers()) as pool:
                list(pool.map(self.one, [check for check in checks if check.alone == alone]))
        signal.setitimer(signal.ITIMER_REAL, 0)
        return self.exit_code()

    def one(self, check):
        if self.end - time.monotonic() < LAST_START:
            return self.note(check, result("not run", "the time was over before it began"))
        bench = self.make_bench()
        try:
            ended = run_check(bench, check)
            self.note(check, ended)
            if ended["result"] == "fail":
                bench.keep(check.name)
        finally:
            bench.close()

    def note(self, check, ended):
        with self.lock:
            del self.waiting[check.name]
            self.ended.append(ended["result"])
            self.writer.add(check.name, {"part": check.part, **ended})
            why = ended["why"].strip().split("\n")[-1][:150]
            line = (check.part, check.name, ended["result"], ended["seconds"], why)
            print("%2d %-40s %-7s %6.1f s  %s" % line, flush=True)

    def time_over(self, *_):
        """The end has come: what runs is killed, and what has not ended is said to be so."""
        with self.lock:
            for check in list(self.waiting.values()):
                self.note(check, result("not run", "the time was over before it ended"))
            processes.kill_all()
            os._exit(self.exit_code())

    def exit_code(self):
        """0: all that can be checked here passed. 1: something failed. 3: nothing ran, or not all of it."""
        counts = ", ".join("%d %s" % (self.ended.count(one), one) for one in ("pass", "fail", "skip", "not run"))
        print("gpu-check: %s; %s" % (counts, self.writer.path), flush=True)
        if "fail" in self.ended:
            return 1
        return 0 if "pass" in self.ended and "not run" not in self.ended else 3


def workers():
    """Checks at once: each runs a training, which wants a few cores."""
    return max(1, min(6, len(os.sched_getaffinity(0)) // 2))
