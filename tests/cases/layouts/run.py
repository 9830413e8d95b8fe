#!/usr/bin/env python3
"""Judges convtrace-diff by pairs of runs of one training in unlike layouts, of which the truth is known.

usage: run.py [--runs FOLDER] [--match EXPRESSION] [--set first_set|second_set...] [--full]
Prints a table in Markdown; exit code 1 where a pair without a fault diverges or is not compared whole, or the root of a fault is
another. Needs PyTorch with gloo, and CONVTRACE_BUILD, the build folder (by default build/release).
"""
import argparse
import datetime
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("CONVTRACE_BUILD", HERE.parents[2] / "build" / "release")).resolve()


def work(name, rank, size, layout, words, store):
    """One rank of a training of a set."""
    import torch
    os.environ["RANK"] = str(rank)
    if size > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size,
                                             timeout=datetime.timedelta(seconds=60))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    importlib.import_module(name).train(layout, rank, size, words)
    if size > 1:
        torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


def work_all(name, size, *words):
    """All ranks, each in a fork: a process that imported PyTorch and computed nothing has no trace, and its forks have their own."""
    for module in "torch._dynamo", name:
        importlib.import_module(module)
    children = {}
    for rank in range(size):
        child = os.fork()
        if child == 0:
            work(name, rank, size, *words)
        children[child] = rank
    for child, rank in children.items():
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"rank {rank} failed")


def traced(of_set, name, folder):
    """The traces of a training, made once."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    layout, ranks, *words = name.split(":")
    env = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE")}
    env |= {"LD_PRELOAD": str(BUILD / "lib" / "libconvtrace.so"), "CONVTRACE_OUTPUT": str(folder / "%r.ctrace"),
            "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    with tempfile.TemporaryDirectory() as store:
        done = subprocess.run([sys.executable, __file__, "--work", of_set, ranks, layout, ":".join(words), os.path.join(store, "store")],
                              env=env | {"WORLD_SIZE": ranks}, stderr=subprocess.PIPE, text=True, timeout=300)
        if done.returncode != 0:
            sys.exit(f"{name}: exit code {done.returncode}\n{done.stderr}")


def compared(pair, base, cand):
    options = (["--layouts", "whole"] if pair.told else []) + (["--map", HERE / pair.map] if pair.map else [])
    done = subprocess.run([BUILD / "bin" / "convtrace-diff", base, cand, "--json", "-", *options], stdout=subprocess.PIPE,
                          text=True, stderr=subprocess.DEVNULL)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{base} {cand}: exit code {done.returncode}")
    return json.loads(done.stdout)


def place(report):
    root = report["root"]
    return root and "{step} {phase} {scope} {slot}".format(**root)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=pathlib.Path, help="folder of the traces, which are kept and used again")
    parser.add_argument("--match", default="", help="only pairs whose names an expression finds")
    parser.add_argument("--full", action="store_true", help="all pairs")
    parser.add_argument("--set", nargs="+", default=["first_set"], help="modules of this folder with trainings and PAIRS")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        name, size, layout, words, store = options.work
        work_all(name, int(size), layout, words.split(":"), store)
        return 0
    scratch = tempfile.TemporaryDirectory()
    runs = options.runs or pathlib.Path(scratch.name)
    print("| baseline | candidate | verdict | root | compared | not compared | right |\n|---|---|---|---|---|---|---|")
    good = True
    for of_set, pair in ((name, pair) for name in options.set for pair in importlib.import_module(name).PAIRS):
        if (pair.full and not options.full) or not re.search(options.match, f"{pair.base} {pair.cand}"):
            continue
        folders = [runs / of_set / name.replace(":", "-") for name in (pair.base, pair.cand)]
        for name, folder in zip((pair.base, pair.cand), folders):
            traced(of_set, name, folder)
        report = compared(pair, *folders)
        apart = report["layouts"]["values_not_compared"] if report["layouts"] else ""
        if pair.root:
            # A fault of a single rank is that of rank 1.
            right = (report["verdict"] == "diverged" and re.match(pair.root, place(report)) is not None
                     and report["root"]["holder"] in (None, {"in": "cand", "rank": 1}))
        else:
            right = report["verdict"] == "same"
        good = good and right
        print(f"| {pair.base} | {pair.cand} | {report['verdict']} | {place(report) or ''} | {report['compared']['values']} | {apart} "
              f"| {'yes' if right else 'NO'} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
