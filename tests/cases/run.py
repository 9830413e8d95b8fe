#!/usr/bin/env python3
"""Judges convtrace-diff by runs of which the truth is known: planted faults, alone and beside rounding, and rounding alone.

usage: run.py [--full] [--runs FOLDER] [--match EXPRESSION] [--mode MODE] [--steps N]
Without --full a fixed small sample. Prints tables in Markdown; exit code 1 where the goals are missed. FOLDER keeps the
traces; they are made again when the library, the observer or the programs of this folder changed. Needs PyTorch, and
CONVTRACE_BUILD, the build folder (by default build/release).
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import judge
from cases import CASES, SAMPLE, VARIANTS
from faults import FAULTS

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("CONVTRACE_BUILD", HERE.parents[1] / "build" / "release"))
DIFF = BUILD / "bin" / "convtrace-diff"
MADE_BY = ("train.py", "training.py", "models.py", *(path.name for path in sorted(HERE.glob("held_out*.py"))), "layers.py", "faults.py")


def fingerprint():
    """@return a hash of all files that a trace depends on."""
    made_by = [HERE / name for name in MADE_BY] + sorted((BUILD / "lib").glob("libconvtrace*.so"))
    made_by += sorted((BUILD / "share" / "convtrace" / "observer").rglob("*.py"))
    digest = hashlib.sha256()
    for path in made_by:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def record(names, folder, mode, steps):
    """Records the missing traces, two processes at a time."""
    key = folder / "made-by"
    made_by = f"{fingerprint()} {mode} {steps}"
    if not key.exists() or key.read_text() != made_by:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        key.write_text(made_by)
    missing = sorted(name for name in names if not (folder / f"{name}.ctrace").exists())
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
    env = plain | {"LD_PRELOAD": str(BUILD / "lib" / "libconvtrace.so"), "CONVTRACE_OVERWRITE": "1", "CONVTRACE_MODE": mode}
    if mode == "snapshot":
        env["CONVTRACE_ALL"] = "1"

    def train(share):
        subprocess.run([sys.executable, HERE / "train.py", folder, *steps], input="\n".join(share), text=True, env=env, check=True)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(train, [share for share in (missing[::2], missing[1::2]) if share]))


def inexact():
    """@return the options for a comparison without the assumption that runs repeat bit by bit."""
    text = subprocess.run([DIFF, "--help"], text=True, stdout=subprocess.PIPE, check=True).stdout
    return ["--exact", "off"] if "--exact" in text else []


def compare(case, folder, options):
    path = folder / f"{case.candidate}.json"
    words = [DIFF, folder / f"{case.base}.ctrace", folder / f"{case.candidate}.ctrace", "--json", path, *options]
    run = subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    report = json.loads(path.read_text()) if run.returncode in (0, 1, 3) else {}
    if run.returncode not in (0, 1) and report.get("verdict") != "cannot-tell":
        sys.exit(f"{case.candidate}: exit code {run.returncode}\n{run.stdout}")
    return report


def row(*cells):
    print(f"| {' | '.join(cells)} |")


def head(*cells):
    row(*cells)
    row(*("---" for _ in cells))


def fault_tables(results):
    """Prints the tables of faults. @return whether the goals are met."""
    head("fault", "model", "precision", "plain", "beside split products")
    grouped = collections.defaultdict(dict)
    counts = collections.defaultdict(collections.Counter)
    for case, (word, says) in results.items():
        grouped[case.fault, case.model, case.precision][case.variant] = word if word == "right" else f"**{word}**: {says}"
        counts[case.precision, case.variant][word] += 1
    for (fault, model, precision), said in grouped.items():
        row(FAULTS[fault].what, model, precision, said.get("plain", ""), said.get("split", ""))
    print()
    words = ("right", "neighbour", "told", "wrong", "missed")
    head("precision", "beside", *words, "good")
    met = True
    for precision, goal in judge.GOALS.items():
        of_precision = collections.Counter()
        for variant, what in (("plain", "nothing"), ("split", "rounding"), (None, "both")):
            count = counts[precision, variant] if variant else of_precision
            of_precision += count if variant else collections.Counter()
            share = sum(count[word] for word in judge.GOOD) / max(count.total(), 1)
            row(precision, what, *(str(count[word]) for word in words), f"{100 * share:.0f} %")
        met &= of_precision.total() == 0 or share >= goal
    return met


def rounding_table(results):
    """Prints the tables of rounding. @return whether nothing diverged."""
    head("rounding", "set", "model", "precision", "verdict")
    for case, (word, says) in results.items():
        row(VARIANTS[case.variant], case.kind, case.model, case.precision, f"**{word}**: {says}" if says else word)
    print()
    words = sorted({word for word, _ in results.values()})
    head("set", *words)
    for kind in dict.fromkeys(case.kind for case in results):
        count = collections.Counter(word for case, (word, _) in results.items() if case.kind == kind)
        row(kind, *(str(count[word]) for word in words))
    return "diverged" not in words


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="all cases, not the sample")
    parser.add_argument("--runs", type=pathlib.Path, default=BUILD / "tests" / "cases", help="folder of the traces")
    parser.add_argument("--match", default="", help="only cases whose name an expression finds: gpt-bf16, +eps, split$")
    parser.add_argument("--mode", default="stats", choices=("stats", "snapshot"), help="what is recorded of a value")
    parser.add_argument("--steps", type=int, help="how long each run trains, in place of its model's own length")
    options = parser.parse_args()
    cases = [case for case in CASES if options.full or case.candidate in SAMPLE]
    cases = [case for case in cases if re.search(options.match, case.candidate)]
    record({name for case in cases for name in (case.base, case.candidate)}, options.runs, options.mode,
           [str(options.steps)] if options.steps else [])
    exact = inexact()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda case: compare(case, options.runs, exact), cases))
    order = {case.model: (options.runs / f"{case.model}.modules").read_text().splitlines() for case in cases}
    results = {case: judge.judge(case, report, order[case.model]) for case, report in zip(cases, reports)}
    met = fault_tables({case: result for case, result in results.items() if case.fault})
    print()
    met &= rounding_table({case: result for case, result in results.items() if not case.fault})
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
