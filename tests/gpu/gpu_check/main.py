"""The command line of gpu-check."""
import argparse
import datetime
import os
import pathlib
import signal
import sys
import tempfile
import time

from . import checks, machine, page, processes, results  # noqa: F401  (checks: lists them)
from .bench import Bench
from .check import CHECKS, LOGS, PARTS
from .runner import Runner
from .tree import Tree

SECONDS = 470  # of a part: a borrowed machine may end a command after ten minutes, its start and the way back included


def parse(root):
    parser = argparse.ArgumentParser(
        prog="gpu-check", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs one part of the checks of convtrace on this machine's GPU and writes down what it saw.",
        epilog="parts:\n" + "".join("  %2d  %s\n" % part for part in PARTS.items()) + "\nexit code: 0 all that can be "
        "checked here passed, 1 something failed,\n2 wrong use or an incomplete tree, 3 nothing ran, or not all of it")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--part", type=int, choices=list(PARTS), metavar="N")
    what.add_argument("--check", action="append", choices=[one.name for one in CHECKS], metavar="NAME",
                      help="only this one; may be repeated")
    what.add_argument("--record", action="store_true",
                      help="write what CUPTI calls under programs of several kinds to DIR/cupti/")
    what.add_argument("--report", nargs="*", metavar="DIR", type=pathlib.Path,
                      help="take the results in these folders into docs/gpu-results/ and write docs/gpu-results.md")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, default=root / "build" / "gpu-check",
                        help="folder of the results, which are added to what it has (default %(default)s)")
    parser.add_argument("--resume", action="store_true", help="leave out what has run on this machine and is in DIR")
    parser.add_argument("--seconds", type=int, default=SECONDS,
                        help="after which it ends by itself (default %(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: run the Python workloads without a GPU, to try this command itself")
    parser.add_argument("--python", metavar="PATH", help="the Python of the workloads (default: one that has PyTorch)")
    return parser.parse_args()


def cut_off(number, _):
    """Ends at once, and all that runs with it: what is over is written already."""
    processes.kill_all()
    print("gpu-check: cut off by %s; --resume runs the rest" % signal.Signals(number).name, file=sys.stderr, flush=True)
    os._exit(128 + number)


def report(root, folders):
    """Merges results of hardware into the repository's and writes the page. @return the exit code."""
    kept = results.load(root / "docs" / "gpu-results")
    for folder in folders:
        found = results.load(folder)
        if not found:
            print("gpu-check: no result in %s" % folder, file=sys.stderr)
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
        os.environ.setdefault(name, os.path.join(folder, name.lower()))
    if "LD_LIBRARY_PATH" in os.environ:
        paths = os.environ["LD_LIBRARY_PATH"].split(":")
        os.environ["LD_LIBRARY_PATH"] = ":".join(os.path.abspath(path) for path in paths if path)


def main(root):
    end = time.monotonic()
    args = parse(root)
    end += args.seconds
    if args.report is not None:
        return report(root, args.report)
    tree = Tree(root)
    if tree.missing:
        print("gpu-check: not built (tools/build makes it): " + ", ".join(tree.missing), file=sys.stderr)
        return 2
    device, driver = machine.driver()
    if device is None and args.device == "cuda":
        print("gpu-check: nothing was run: %s" % driver)
        return 3
    cache = tempfile.TemporaryDirectory(prefix="gpu-check-cache-")
    prepare_environment(cache.name)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, cut_off)
    python = machine.absolute(args.python) if args.python else machine.choose_python(root)
    run = {"date": datetime.date.today().isoformat(), "driver": driver if device else None, "workloads": args.device,
           "kernel_module": machine.kernel_module_version(), "versions": machine.versions(python)}
    writer = results.Writer(args.out.resolve(), device or machine.CPU, tree.commit, run)
    is_fake = (device or "").startswith(machine.FAKE)
    cupti = machine.find_cupti(python, driver) if device and not is_fake else None
    trouble = machine.torch_trouble(python, args.device)

    def make_bench():
        bench = Bench(tree, python, args.device, is_fake, writer.folder)
        bench.cupti, bench.torch_trouble, bench.driver_trouble = cupti, trouble, None if device else driver
        return bench

    print("gpu-check: %s, driver %s, commit %s" % (writer.results["device"], run["driver"], tree.commit), flush=True)
    part = LOGS if args.record else args.part
    wanted = [one for one in CHECKS if (one.name in args.check if args.check else one.part == part)]
    kept = [one for one in wanted if args.resume and writer.has_run(one.name)]
    runner = Runner(writer, make_bench, end, [writer.results["checks"][one.name]["result"] for one in kept])
    return runner.run([one for one in wanted if one not in kept])
