"""Runs checks within a time, several at once but those that want to be alone; each is written when it begins, when it has
numbers and when it is over."""
import concurrent.futures
import math
import os
import pathlib
import signal
import threading
import time
import traceback

from . import processes, schedule
from .bench import Failure, Skip

HERE = str(pathlib.Path(__file__).parent) + os.sep
CUT_OFF = "it was cut off while it ran"  # what is written of a check that has begun


def result(result, why="", numbers=None, seconds=0.0):
    numbers = {key: value if not isinstance(value, float) or math.isfinite(value) else str(value)  # JSON has no NaN
               for key, value in (numbers or {}).items()}
    return {"result": result, "why": why, "numbers": numbers, "seconds": round(seconds, 2)}


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
    if bench.late:
        ended, why = "not run", bench.late
    return result(ended, why, bench.numbers, time.monotonic() - start)


class Runner:
    """One run. `end`: the time.monotonic() at which what still runs is killed, by a signal to this process. `ended`:
    results of checks that a run before had, which count for the exit code. `limited`: each check is killed at a limit of
    its own, too."""

    def __init__(self, writer, make_bench, end, ended=(), at_once=1, limited=False):
        self.writer, self.make_bench, self.end, self.at_once, self.limited = writer, make_bench, end, at_once, limited
        self.begin = time.monotonic()
        self.waiting = {}  # by name, the checks that have not ended
        self.ended = list(ended)
        self.lock = threading.RLock()  # one thread at a time writes; the signal comes to the one that may have it

    def run(self, checks):
        """Runs the checks in this order. @return the exit code; the process may end before."""
        self.waiting = {check.name: check for check in checks}
        signal.signal(signal.SIGALRM, self.time_over)
        signal.setitimer(signal.ITIMER_REAL, max(self.end - time.monotonic(), 0.001))
        for group in schedule.groups(checks):
            with concurrent.futures.ThreadPoolExecutor(self.at_once) as pool:
                list(pool.map(self.one, group))
        signal.setitimer(signal.ITIMER_REAL, 0)
        return self.exit_code()

    def one(self, check):
        left, needed = self.end - schedule.END - time.monotonic(), schedule.seconds_of(check)
        if left < needed:
            return self.note(check, result("not run", "its %d s do not fit into the %d s that are left" % (needed, max(left, 0))))
        bench = self.make_bench()
        limit = min(left, schedule.limit_of(check) if self.limited else left)
        timer = threading.Timer(limit, bench.stop, ["it was stopped at its limit of %d s" % limit])
        try:
            bench.noted = lambda numbers: self.write(check, result("not run", CUT_OFF, numbers))
            bench.noted({})
            timer.start()
            ended = run_check(bench, check)
            timer.cancel()
            with self.lock:
                if ended["result"] == "fail":
                    bench.keep(check.name)
                self.note(check, ended)
        finally:
            bench.close()

    def write(self, check, ended):
        with self.lock:
            self.writer.add(check.name, {"part": check.part, **ended})

    def note(self, check, ended):
        with self.lock:
            del self.waiting[check.name]
            self.ended.append(ended["result"])
            self.write(check, ended)
            word = ended["result"] if ended["result"] in ("pass", "fail") else "skipped:"
            print("%5.0f s  %-8s %-42s %s" % (time.monotonic() - self.begin, word, check.name, told(check, ended)), flush=True)

    def time_over(self, *_):
        """The end has come: what runs is killed, and what has not ended is said to be so."""
        with self.lock:
            for check in list(self.waiting.values()):
                begun = self.writer.results["checks"].get(check.name, {})
                self.note(check, result("not run", "the time was over before it ended", begun.get("numbers")))
            processes.kill_all()
            os._exit(self.exit_code())

    def exit_code(self):
        """0: all that can be checked here passed. 1: something failed. 3: nothing ran, or not all of it."""
        counts = ", ".join("%d %s" % (self.ended.count(one), one) for one in ("pass", "fail", "skip", "not run"))
        print("gpu-check: %s; %s" % (counts, self.writer.told), flush=True)
        if "fail" in self.ended:
            return 1
        return 0 if "pass" in self.ended and "not run" not in self.ended else 3


def told(check, ended):
    """@return the result of a check, in one line."""
    decides = schedule.ROWS.get(check.name, ("",))[0]
    numbers = ", ".join("%s %s" % (key, "%.4g" % value if isinstance(value, float) else value) for key, value in ended["numbers"].items())
    why = (ended["why"].strip().split("\n") or [""])[-1]
    return "; ".join(part[:220] for part in (why, decides if ended["result"] == "pass" else "", numbers) if part)
