"""`convtrace origin` over made-up jobs of 100 and 1,000 ranks, 20 steps and about 500 collectives a rank and step, with a
fault in the last step but one, so that nearly all is read. The job of 1,000 ranks is 2.6 GB and takes two minutes to make.

usage: bench_origin.py --full [--ranks N] [--steps N] [--program convtrace] [--folder FOLDER]"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAMS = pathlib.Path(os.environ.get("CONVTRACE_BUILD") or pathlib.Path(__file__).resolve().parents[2] / "build/release", "bin")
COLLECTIVES = 500
SECONDS, GROWTH, PEAK_MIB = 60, 11, 2048  # goals
NAMES = ("job.origin.ranks_1000_s", "job.origin.growth", "job.origin.peak", "job.origin.named")


def row(name, value, unit, at_most, goal, against):
    ok = value <= goal if at_most else value >= goal
    return {"name": name, "value": value, "unit": unit, "goal": f"{'<=' if at_most else '>='} {goal:g}", "against": against,
            "ok": ok, "spread": 0.0}


def unmeasured(why):
    return [{"name": name, "value": None, "unit": None, "goal": None, "against": None, "ok": None, "spread": None, "why": why}
            for name in NAMES]


def made(folder, ranks, steps):
    """A job whose weights flip in the last step but one, of a rank in the middle."""
    origin = ranks * 5 // 8, steps - 2
    subprocess.run([PROGRAMS / "simulate_job", "--ranks", str(ranks), "--steps", str(steps), "--tp", "4", "--pp", "5",
                    "--collectives", str(COLLECTIVES), "--cheap", "--origin", "%d:%d" % origin, "--kind", "flip", "--output", folder],
                   check=True, stdout=sys.stderr)
    return origin


def measured(program, folder, origin):
    """Seconds, seconds of processor time, MiB at most, whether the origin is named first."""
    report = str(folder) + ".json"
    start = time.monotonic()
    child = subprocess.Popen([program, "origin", folder, "--json", report], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    named = False
    if child.returncode == 4:
        with open(report, encoding="utf-8") as file:
            first = json.load(file)["origins"][0]
        named = (first["rank"], first["step"]) == origin
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, named


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--program", default=PROGRAMS / "convtrace")
    parser.add_argument("--folder", help="where the traces are made for a while")
    args = parser.parse_args()
    helped = subprocess.run([args.program, "--help"], stdout=subprocess.PIPE, text=True).stdout
    if not args.full or not any(line.split()[:1] == ["origin"] for line in helped.splitlines()):
        print(json.dumps(unmeasured("minutes and gigabytes: with --full alone" if not args.full else "there is no command origin")))
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="origin-bench-", dir=args.folder))
    try:
        results = {}
        for ranks in (args.ranks // 10, args.ranks):
            origin = made(folder / str(ranks), ranks, args.steps)
            results[ranks] = measured(args.program, folder / str(ranks), origin)
            shutil.rmtree(folder / str(ranks))
        few, many = results[args.ranks // 10], results[args.ranks]
        what = f"{args.ranks} ranks, {args.steps} steps, {COLLECTIVES} collectives a rank and step"
        print(json.dumps([
            row(NAMES[0], many[0], "s", True, SECONDS, "absolute: " + what),
            row(NAMES[1], many[1] / few[1], "times", True, GROWTH, f"processor time of {args.ranks // 10} ranks"),
            row(NAMES[2], many[2], "MiB", True, PEAK_MIB, "absolute, the largest of the process"),
            row(NAMES[3], float(few[3] + many[3]), "jobs", False, 2, "of two, the planted rank and step first")]))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
