"""`convtrace origin` of one made-up job alone, and spread over DuckDB and Spark by convtrace.jobs on this machine: what the
engines cost where one machine is enough. The reports are compared, too.

usage: bench_jobs.py --full [--ranks N] [--steps N] [--folder FOLDER]"""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import bench_origin

NAME = "job.spark_vs_one"


def unmeasured(why):
    return [{"name": NAME, "value": None, "unit": None, "goal": None, "against": None, "ok": None, "spread": None, "why": why}]


def seconds(command, report):
    start = time.monotonic()
    done = subprocess.run([*command, "--json", report], stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 4:
        sys.exit("%s ended with %d" % (command[0], done.returncode))
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--ranks", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", help="where the traces are made for a while")
    args = parser.parse_args()
    lacking = [name for name in ("duckdb", "pyspark") if importlib.util.find_spec(name) is None]
    if not args.full or lacking or shutil.which("java") is None:
        print(json.dumps(unmeasured("minutes: with --full alone" if not args.full else "no duckdb, pyspark or java")))
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="jobs-bench-", dir=args.folder))
    os.environ["PYTHONPATH"] = str(bench_origin.PROGRAMS.parent / "share/convtrace/python")
    try:
        traces = folder / "job"
        bench_origin.made(traces, args.ranks, args.steps)
        took, reports = {}, {}
        spread = [sys.executable, "-m", "convtrace.jobs", "origin", traces, "--output", folder / "tables", "--engine"]
        for name, command in (("one", [bench_origin.PROGRAMS / "convtrace", "origin", traces]), ("duckdb", [*spread, "duckdb"]),
                              ("spark", [*spread, "spark"])):
            took[name] = seconds(command, folder / name)
            reports[name] = (folder / name).read_bytes()
        same = len(set(reports.values())) == 1
        against = "%.1f s of the program alone, %.1f s with DuckDB, %.1f s with Spark local[*]; %d ranks, %d steps; reports %s" % (
            took["one"], took["duckdb"], took["spark"], args.ranks, args.steps, "equal" if same else "DIFFER")
        print(json.dumps([{"name": NAME, "value": took["spark"] / took["one"], "unit": "times", "goal": "none", "against": against,
                           "ok": same, "spread": 0.0}]))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
