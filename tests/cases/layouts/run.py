#!/usr/bin/env python3
"""Judges convtrace-diff by pairs of runs of one training in unlike layouts, of which the truth is known.

usage: run.py [--runs FOLDER] [--match EXPRESSION] [--full]
Prints a table in Markdown; exit code 1 where a pair without a fault diverges or is not compared whole, or the root of a fault is
another. Needs PyTorch with gloo, and CONVTRACE_BUILD, the build folder (by default build/release).
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("CONVTRACE_BUILD", HERE.parents[2] / "build" / "release")).resolve()


@dataclasses.dataclass(frozen=True)
class Pair:
    base: str  # layout:ranks[:word...]
    cand: str
    root: str = ""  # expression over "step phase scope slot"; none: no fault
    full: bool = False  # with --full alone
    told: bool = False  # that the layouts differ, which nothing in the traces says


PAIRS = [
    Pair("one:1", "ddp:2"),
    Pair("one:1", "fsdp:2"),
    Pair("one:1", "tp:2"),
    Pair("one:1", "hand:2"),
    Pair("one:1", "tp+fsdp:4"),
    Pair("one:1", "one:1:fused", told=True),
    Pair("fsdp:2", "tp:2"),
    Pair("tp+fsdp:4", "ddp:2"),
    Pair("hand:2", "one:1:fused"),
    Pair("one:1:masked", "ddp:2:masked"),
    Pair("one:1:bf16", "tp:2:bf16", full=True),
    Pair("one:1:bf16", "ddp:2:bf16", full=True),
    Pair("fsdp:2", "fsdp:4", full=True),
    Pair("one:1", "hand:4", full=True),
    Pair("one:1", "ddp:2:gradients-summed", "0 backward .* grad:"),
    Pair("one:1", "ddp:2:same-data", "0 data  input:0"),
    Pair("one:1", "ddp:2:replica", "1 forward head output:0"),
    # The scale of a loss by the counts of its rank: Megatron-LM#7452, item 3.
    Pair("one:1:masked", "ddp:2:local-counts", "0 \\S+ .*loss"),
    Pair("one:1", "fsdp:2:scale", "1 .* (loss|input:0)"),
    Pair("one:1", "tp:2:other-shard", "0 forward blocks.1.up param:weight"),
    Pair("one:1", "hand:2:bias-everywhere", "0 forward blocks.0.attn.o_proj output:0"),
    Pair("one:1", "hand:2:no-reduction", "0 backward blocks.1\\S* grad"),
    Pair("ddp:2", "hand:2:no-reduction", "0 backward blocks.1\\S* grad", told=True),
    Pair("hand:2", "fsdp:2:scale", "1 .* (loss|input:0)", full=True),
    Pair("one:1:bf16", "hand:2:bf16:bias-everywhere", "0 forward blocks.0.attn.o_proj output:0", full=True),
]


def work(rank, size, layout, words, store):
    """One rank of a training."""
    import torch

    import programs
    if size > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size,
                                             timeout=datetime.timedelta(seconds=60))
    programs.run(layout, rank, size, words)
    if size > 1:
        torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


def traced(name, folder):
    """The traces of a training, made once."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    layout, ranks, *words = name.split(":")
    env = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE")}
    env |= {"LD_PRELOAD": str(BUILD / "lib" / "libconvtrace.so"), "CONVTRACE_OUTPUT": str(folder / "%r.ctrace"),
            "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    with tempfile.TemporaryDirectory() as store:
        ranks = int(ranks)
        children = [subprocess.Popen(
            [sys.executable, __file__, "--work", str(rank), str(ranks), layout, ":".join(words), os.path.join(store, "store")],
            env=env | {"RANK": str(rank), "WORLD_SIZE": str(ranks)}, stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
        for child in children:
            _, said = child.communicate(timeout=300)
            if child.returncode != 0:
                sys.exit(f"{name}: exit code {child.returncode}\n{said}")


def compared(base, cand, told):
    done = subprocess.run([BUILD / "bin" / "convtrace-diff", base, cand, "--json", "-", *(["--layouts", "whole"] if told else [])],
                          stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
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
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        rank, size, layout, words, store = options.work
        work(int(rank), int(size), layout, words.split(":"), store)
    scratch = tempfile.TemporaryDirectory()
    runs = options.runs or pathlib.Path(scratch.name)
    print("| baseline | candidate | verdict | root | compared | not compared | right |\n|---|---|---|---|---|---|---|")
    good = True
    for pair in PAIRS:
        if (pair.full and not options.full) or not re.search(options.match, f"{pair.base} {pair.cand}"):
            continue
        for name in (pair.base, pair.cand):
            traced(name, runs / name.replace(":", "-"))
        report = compared(*(runs / name.replace(":", "-") for name in (pair.base, pair.cand)), pair.told)
        apart = report["layouts"]["values_not_compared"] if report["layouts"] else ""
        if pair.root:
            right = report["verdict"] == "diverged" and re.match(pair.root, place(report)) is not None
        else:
            right = report["verdict"] == "same"
        good = good and right
        print(f"| {pair.base} | {pair.cand} | {report['verdict']} | {place(report) or ''} | {report['compared']['values']} | {apart} "
              f"| {'yes' if right else 'NO'} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
