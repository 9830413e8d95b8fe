"""The command line of gpu-check, and the loop over checks."""
import argparse
import concurrent.futures
import datetime
import math
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

from . import machine, processes
from .bench import Bench, Failure, Skip
from .report import Report
from .sections import ALL
from .tree import Tree

QUICK_SECONDS = 8 * 60


def parse(root):
    parser = argparse.ArgumentParser(
        prog="gpu-check", description="Runs convtrace on this machine's GPU and reports what it saw. Exit code: "
        "0 nothing failed, 1 something failed, 2 wrong use or an incomplete tree.")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="within 8 minutes (default)")
    extent.add_argument("--full", action="store_true", help="everything, without a limit: over half an hour")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, default=root / "build" / "gpu-check",
                        help="folder for report.md and report.json (default %(default)s)")
    parser.add_argument("--section", action="append", choices=list(ALL), help="only this one; may be repeated")
    parser.add_argument("--resume", action="store_true",
                        help="keep what an earlier run of the same commit on the same device has in DIR")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: run the Python workloads without a GPU, to try this command itself")
    parser.add_argument("--python", metavar="PATH", help="the Python of the workloads (default: one that has PyTorch)")
    return parser.parse_args()


def facts(tree, python, workloads):
    device, version = machine.driver()
    return {
        "device": device, "driver": version if device else None, "why_no_device": None if device else version,
        "kernel_module": machine.kernel_module_version(), "commit": tree.commit,
        "date": datetime.date.today().isoformat(), "workloads": workloads, "versions": machine.versions(python),
    }


def run_check(bench, check, remaining):
    """@return the check's entry in the report."""
    status, why, start = "pass", "", time.monotonic()
    try:
        if check.full_only and not bench.full:
            raise Skip("only with --full")
        if remaining < check.seconds:
            raise Skip("the time is over")
        bench.note(check.run(bench) or {})
    except Skip as skip:
        status, why = "skip", str(skip)
    except Failure as failure:
        status, why = "fail", str(failure)
    except Exception:  # a fault of the check itself must not hide what the others say
        status, why = "fail", traceback.format_exc(limit=-3)
    numbers = {key: value if not isinstance(value, float) or math.isfinite(value) else str(value)  # JSON has no NaN
               for key, value in bench.numbers.items()}
    return dict(name=check.name, status=status, why=why, numbers=numbers, seconds=round(time.monotonic() - start, 2))


class Runner:
    """Runs the checks of sections, several at once but those that want to be alone, and reports each when it is over."""

    def __init__(self, report, make_bench, end):
        self.report, self.make_bench, self.end = report, make_bench, end

    def section(self, name):
        checks = [check for check in ALL[name].CHECKS if not self.report.has(name, check.name)]
        for alone in (False, True):
            with concurrent.futures.ThreadPoolExecutor(1 if alone else workers()) as pool:
                those = [pool.submit(self.one, check) for check in checks if check.alone == alone]
                for future in concurrent.futures.as_completed(those):
                    self.note(name, future.result())

    def note(self, section, entry):
        self.report.add(section, entry)
        print("%-12s %-34s %-5s %6.1f s  %s" % (section, entry["name"], entry["status"], entry["seconds"],
                                               entry["why"].strip().split("\n")[-1][:150]), flush=True)

    def one(self, check):
        bench = self.make_bench()
        try:
            return run_check(bench, check, self.end - time.monotonic())
        finally:
            bench.close()


def workers():
    """Checks at once: each runs a training, which wants a few cores."""
    return max(1, min(6, len(os.sched_getaffinity(0)) // 2))


def cut_off(number, _):
    """Ends at once, and all that runs with it: what is over is in the report already."""
    processes.kill_all()
    print("gpu-check: cut off by %s; --resume runs the rest" % signal.Signals(number).name, file=sys.stderr, flush=True)
    os._exit(128 + number)


def main(root):
    start = time.monotonic()
    args = parse(root)
    tree = Tree(root)
    if tree.missing:
        print("gpu-check: not built (tools/build makes it): " + ", ".join(tree.missing), file=sys.stderr)
        return 2
    # Compilers of kernels write beside us, not into a home that may not be writable.
    cache = tempfile.TemporaryDirectory(prefix="gpu-check-cache-")
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ.setdefault(name, os.path.join(cache.name, name.lower()))
    if "LD_LIBRARY_PATH" in os.environ:  # programs run in folders of their own
        os.environ["LD_LIBRARY_PATH"] = ":".join(os.path.abspath(path) for path in os.environ["LD_LIBRARY_PATH"].split(":") if path)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, cut_off)
    python = machine.absolute(args.python) if args.python else machine.choose_python(root)
    about = facts(tree, python, args.device)
    report = Report(args.out.resolve(), about)
    if args.resume:
        report.keep_earlier()
    report.write()
    is_fake = (about["device"] or "").startswith(machine.FAKE)
    cupti = None if is_fake else machine.find_cupti(python)
    trouble = machine.torch_trouble(python, args.device)
    end = start + (float("inf") if args.full else QUICK_SECONDS)

    def make_bench():
        bench = Bench(tree, python, args.device, is_fake, args.full, end)
        bench.cupti, bench.torch_trouble, bench.driver_trouble = cupti, trouble, about["why_no_device"]
        return bench

    print("gpu-check: %s, driver %s, commit %s" % (about["device"] or about["why_no_device"], about["driver"], about["commit"]),
          flush=True)
    runner = Runner(report, make_bench, end)
    for name in args.section or ALL:
        runner.section(name)
    report.write()
    print("gpu-check: %d passed, %d failed, %d skipped; %s" % (
        *(report.count(status) for status in ("pass", "fail", "skip")), report.folder / "report.md"))
    return 1 if report.count("fail") else 0
