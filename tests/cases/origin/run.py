#!/usr/bin/env python3
"""Judges convtrace origin by programs of several ranks of which the truth is known: each faulty and corrected.

usage: run.py [--runs FOLDER] [--match EXPRESSION] [--full]
Without --full it runs SAMPLE, cases of each kind of fault.
Prints a table in Markdown; exit code 1 where a fault is not named first, or something is found in a corrected program.
Needs PyTorch with gloo, and CONVTRACE_BUILD, the build folder (by default build/release).
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import torch
import torch._dynamo  # noqa: F401 - the first optimizer would import it

from programs import CASES

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("CONVTRACE_BUILD", HERE.parents[2] / "build" / "release")).resolve()

SAMPLE = ("router-gradient", "forgotten-division", "skipped-metric", "nan-of-one-rank")


def work(rank, name, faulty, store):
    """One rank of a program."""
    torch.set_num_threads(1)
    case = CASES[name]
    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=case.size,
                                         timeout=datetime.timedelta(seconds=15))
    case.program(rank, case.size, faulty)
    os._exit(0)  # ranks that a fault has parted do not wait for each other


def trace(name, faulty, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE")}
    env |= {"LD_PRELOAD": str(BUILD / "lib" / "libconvtrace.so"), "CONVTRACE_OUTPUT": str(folder / "%r.ctrace"),
            "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, "--work", name, "faulty" if faulty else "right"], env=env, check=not faulty,
                   stderr=subprocess.DEVNULL)


def origins(folder):
    report = folder / "origin.json"
    done = subprocess.run([BUILD / "bin" / "convtrace", "origin", folder, "--json", report], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3, 4):
        sys.exit(f"{folder}: exit code {done.returncode}\n{done.stdout}")
    return json.loads(report.read_text())


def judge(case, report):
    """@return right: the first origin, or the expected note, is the fault; named: a later origin is; else missed."""
    found = report["origins"]
    if case.note is not None:
        return "right" if not found and notes_of(case, report) else "missed"
    for place, origin in enumerate(found):
        rank = case.rank is None or origin["rank"] == case.rank
        where = case.where is None or (origin["scope"] or "").startswith(case.where)
        if origin["kind"] in case.kinds and origin["step"] == case.step and rank and where:
            return "right" if place == 0 else "named"
    return "missed"


def notes_of(case, report):
    return [note for note in report["notes"] if case.note is not None and re.search(case.note, note)]


def words(case, report):
    found = report["origins"]
    if not found:
        return "; ".join("note: " + note.split(",")[0] for note in notes_of(case, report))
    return "; ".join("{kind} rank {rank} step {step} {scope} {slot}".format(**one) for one in found[:2]).replace("|", "\\|")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=pathlib.Path, default=BUILD / "tests" / "cases" / "origin", help="folder of the traces")
    parser.add_argument("--match", default="", help="only cases whose name an expression finds")
    parser.add_argument("--full", action="store_true", help="all cases")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        name, form = options.work
        with tempfile.TemporaryDirectory() as folder:
            # Forks of a process that computed nothing are traced on their own, and import nothing anew.
            torch.multiprocessing.start_processes(work, (name, form == "faulty", os.path.join(folder, "store")),
                                                  nprocs=CASES[name].size, start_method="fork")
        return 0
    print("| case | known from | found | corrected | verdict |\n|---|---|---|---|---|")
    good = True
    for name, case in CASES.items():
        if not re.search(options.match, name) or not (options.full or name in SAMPLE):
            continue
        found = []
        for form in ("faulty", "right"):
            trace(name, form == "faulty", options.runs / f"{name}+{form}")
            found.append(origins(options.runs / f"{name}+{form}"))
        verdict = judge(case, found[0])
        silent = not found[1]["origins"] and not notes_of(case, found[1])
        good = good and verdict == "right" and silent
        verdict = verdict if verdict == "right" and silent else f"**{verdict}**"
        print(f"| {name} | {case.known} | {words(case, found[0])} | {words(case, found[1]) or 'nothing'} | {verdict} |",
              flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
