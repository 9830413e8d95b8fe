"""The command line of gpu-check."""
import argparse
import datetime
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from . import archive, checks, machine, page, processes, results, schedule  # noqa: F401  (checks: lists them)
from .bench import Bench
from .check import CHECKS, LOGS, PARTS
from .runner import Runner
from .tree import Tree

SECONDS = 470  # of a part: a rented machine may end a command after ten minutes, its start and the way back included


def parse(root):
    parser = argparse.ArgumentParser(
        prog="gpu-check", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs checks of convtrace on this machine's GPU and writes down what it saw: with --within alone, what is "
        "open, in the order of what it decides.",
        epilog="parts:\n" + "".join("  %2d  %s\n" % part for part in PARTS.items()) + "\nexit code: 0 all that can be "
        "checked here passed, 1 something failed,\n2 wrong use or an incomplete tree, 3 nothing ran, or not all of it")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--part", type=int, choices=list(PARTS), metavar="N")
    what.add_argument("--check", action="append", choices=[one.name for one in CHECKS], metavar="NAME",
                      help="only this one; may be repeated")
    what.add_argument("--record", action="store_true",
                      help="write what CUPTI calls under programs of several kinds to DIR/cupti/")
    what.add_argument("--report", nargs="*", metavar="PATH", type=pathlib.Path,
                      help="take the results in these folders and archives into docs/gpu-results/ and write docs/gpu-results.md")
    parser.add_argument("--within", type=int, metavar="SECONDS",
                        help="when it ends; with a part, a check or --record %d by default" % SECONDS)
    parser.add_argument("--dry-run", action="store_true", help="print the schedule of --within and run nothing; needs no GPU")
    parser.add_argument("--at-once", type=int, metavar="N", default=schedule.workers(),
                        help="checks at once where none measures time (default: half the cores, at most 6; here %(default)s)")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, default=root / "build" / "gpu-check",
                        help="folder of the results, which are added to what it has, or with --within alone of the archive "
                        "(default %(default)s)")
    parser.add_argument("--resume", action="store_true", help="leave out what has run on this machine and is in DIR")
    parser.add_argument("--device", choices=("cuda", "fake", "cpu"), default="cuda",
                        help="to try this command itself. fake: the driver double of the build, what needs no PyTorch; cpu: the "
                        "Python workloads without a GPU")
    parser.add_argument("--python", metavar="PATH", help="the Python of the workloads (default: one that has PyTorch)")
    args = parser.parse_args()
    args.by_schedule = not (args.part or args.check or args.record) and args.report is None
    if args.by_schedule and args.within is None:
        parser.error("one of --within, --part, --check, --record, --report is needed")
    if args.dry_run and not args.by_schedule:
        parser.error("--dry-run shows the schedule of --within alone")
    args.within = args.within or SECONDS
    return args


def cut_off(number, _):
    """Ends at once, and all that runs with it: what is over is written already."""
    processes.kill_all()
    print("gpu-check: cut off by %s; --resume runs the rest" % signal.Signals(number).name, file=sys.stderr, flush=True)
    os._exit(128 + number)


def report(root, folders):
    """Merges results of hardware into the repository's and writes the page. @return the exit code."""
    kept = results.load(root / "docs" / "gpu-results")
    for path in folders:
        found = results.load(path)
        if not found:
            print("gpu-check: no result in %s" % path, file=sys.stderr)
            return 2
        for name, one in found.items():
            if not machine.is_hardware(one["device"]):
                print("gpu-check: %s is no GPU: its results are left out" % one["device"], file=sys.stderr)
                continue
            kept[name] = results.merge(kept.get(name, one), one)
            results.write(root / "docs" / "gpu-results", kept[name])
    path = root / "docs" / "gpu-results.md"
    results.replace(path, page.page(path.read_text(), list(kept.values())))
    return 0


def prepare_environment(folder):
    """Compilers of kernels write beside us, not into a home that may not be writable. Programs run in other folders."""
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ.setdefault(name, str(folder / name.lower()))
    if "LD_LIBRARY_PATH" in os.environ:
        paths = os.environ["LD_LIBRARY_PATH"].split(":")
        os.environ["LD_LIBRARY_PATH"] = ":".join(os.path.abspath(path) for path in paths if path)


def on_the_double(tree):
    """Starts this command anew with the driver double in the place of the driver, unless it is there. @return the exit code."""
    folder = tree.build / "fakecuda"
    if not folder.is_dir():
        print("gpu-check: %s is not there: only a build has the driver double" % folder, file=sys.stderr)
        return 2
    paths = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if str(folder) not in paths:
        os.environ["LD_LIBRARY_PATH"] = ":".join([str(folder), *filter(None, paths)])
        os.execv(sys.executable, [sys.executable, *sys.argv])
    return None


def main(root):
    begin = time.monotonic()
    args = parse(root)
    if args.report is not None:
        return report(root, args.report)
    if args.dry_run:
        print("\n".join(schedule.show(schedule.plan(schedule.scheduled(), args.within, args.at_once), args.within, args.at_once)))
        return 0
    tree = Tree(root)
    if tree.missing:
        print("gpu-check: not built (tools/build makes it): " + ", ".join(tree.missing), file=sys.stderr)
        return 2
    if args.device == "fake":
        code = on_the_double(tree)
        if code is not None:
            return code
        args.device = "cuda"
    device, driver = machine.driver()
    if device is None and args.device == "cuda":
        print("gpu-check: nothing was run: %s" % driver)
        return 3
    work = tempfile.mkdtemp(prefix="gpu-check-")
    try:
        return run(args, tree, device, driver, pathlib.Path(work), begin + args.within)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run(args, tree, device, driver, work, end):
    """@param work  a folder for what is not to stay. @return the exit code; it may end the process instead."""
    prepare_environment(work / "cache")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, cut_off)
    python = machine.absolute(args.python) if args.python else machine.choose_python(tree.root)
    about = {"date": datetime.date.today().isoformat(), "driver": driver if device else None, "workloads": args.device,
             "kernel_module": machine.kernel_module_version(), "versions": machine.versions(python)}
    folder, packed = args.out.resolve(), None
    if args.by_schedule:
        packed = archive.Archive(folder / archive.NAME, work / "results")
        folder = packed.folder
        if args.resume and packed.path.exists():
            archive.unpack(packed.path, folder)
    writer = results.Writer(folder, device or machine.CPU, tree.commit, about, packed)
    is_fake = (device or "").startswith(machine.FAKE)
    cupti = machine.find_cupti(python, driver) if device and not is_fake else None
    trouble = "PyTorch has no use for the driver double" if is_fake else machine.torch_trouble(python, args.device)

    def make_bench():
        bench = Bench(tree, python, args.device, is_fake, writer.folder)
        bench.cupti, bench.torch_trouble, bench.driver_trouble = cupti, trouble, None if device else driver
        return bench

    print("gpu-check: %s, driver %s, commit %s" % (writer.results["device"], about["driver"], tree.commit), flush=True)
    if args.by_schedule:
        wanted = schedule.scheduled()
    else:
        part = LOGS if args.record else args.part
        wanted = sorted((one for one in CHECKS if (one.name in args.check if args.check else one.part == part)), key=lambda one: one.alone)
    kept = [one for one in wanted if args.resume and writer.has_run(one.name)]
    runner = Runner(writer, make_bench, end, [writer.results["checks"][one.name]["result"] for one in kept], args.at_once, args.by_schedule)
    return runner.run([one for one in wanted if one not in kept])
