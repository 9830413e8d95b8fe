#!/usr/bin/env python3
"""Judges convtrace check by programs of which the truth is known: faulty ones, the same ones corrected, and clean ones.

usage: run.py [--full | --held-out] [--runs FOLDER] [--match EXPRESSION] [--record]
Without --full a fixed small sample. Prints tables in Markdown; exit code 1 where a fault is missed or a program without
one has a finding above a hint. FOLDER keeps the traces; they are made again when the library, the observer or the
programs of this folder changed. Needs PyTorch, and CONVTRACE_BUILD, the build folder (by default build/release).
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from faulty import CLEAN_SAMPLE, FAULTY, SAMPLE
from table import CASES, CLEAN, CLEAN_HELD_OUT, HELD_OUT, only, paths

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("CONVTRACE_BUILD", HERE.parents[2] / "build" / "release")).resolve()
ABOVE_HINT = ("warning", "error")
HELD_OUT_GOAL = 0.7  # share of the faults that no rule was made for


def fingerprint():
    """@return a hash of all files that a trace depends on."""
    made_by = [path for path in sorted(HERE.glob("*.py")) if path.name != "run.py"]
    made_by += sorted((BUILD / "lib").glob("libconvtrace*.so"))
    made_by += sorted((BUILD / "share" / "convtrace" / "observer").rglob("*.py"))
    digest = hashlib.sha256()
    for path in made_by:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def record(names, folder, quiet):
    """Records the missing traces, two processes at a time."""
    key, made_by = folder / "made-by", fingerprint()
    if not key.exists() or key.read_text() != made_by:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        key.write_text(made_by)
    missing = [name for name in names if not all(path.exists() for path in paths(name, folder))]
    plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
    env = plain | {"LD_PRELOAD": str(BUILD / "lib" / "libconvtrace.so"), "CONVTRACE_OVERWRITE": "1"}

    def make(share):
        run = subprocess.run([sys.executable, HERE / "record.py", folder], input="\n".join(share), text=True, env=env,
                             stderr=subprocess.PIPE if quiet else None)
        if run.returncode != 0:
            sys.exit(f"{run.stderr or ''}\nrecord.py: exit code {run.returncode}")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(make, [share for share in (missing[::2], missing[1::2]) if share]))


def check(name, folder):
    """@return the findings, worst first."""
    report = folder / f"{name}.json"
    report.unlink(missing_ok=True)
    words = [BUILD / "bin" / "convtrace", "check", *paths(name, folder), "--json", report]
    if only(name):
        words += ["--only", only(name)]
    run = subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode not in (0, 4) or not report.exists():
        sys.exit(f"{name}: exit code {run.returncode}\n{run.stdout}")
    findings = json.loads(report.read_text())["findings"]
    if (run.returncode == 4) != bool(above_hint(findings)):
        sys.exit(f"{name}: exit code {run.returncode} with {[(f['id'], f['level']) for f in findings]}")
    return findings


def above_hint(findings):
    return [finding for finding in findings if finding["level"] in ABOVE_HINT]


def judge_faulty(case, findings):
    """@return right: the expected finding is the first one; named: it is a later one; else missed."""
    told = [f["id"] for f in (findings if case.hint else above_hint(findings))]
    if case.expected not in told:
        return "missed"
    return "right" if findings[0]["id"] == case.expected else "named"


def judge_silent(findings):
    return "false" if above_hint(findings) else "silent"


def place(finding):
    """@return the first finding in a few words."""
    words = [finding["id"], finding["level"]]
    if finding.get("step") is not None:
        words.append(f"step {finding['step']}")
    words += [str(finding[key]) for key in ("phase", "scope", "slot") if finding.get(key)]
    return " ".join(words).replace("|", "\\|")


def first(findings):
    return place(findings[0]) if findings else ""


def row(*cells):
    print(f"| {' | '.join(cells)} |")


def head(*cells):
    row(*cells)
    row(*("---" for _ in cells))


def marked(word, good):
    return word if word in good else f"**{word}**"


def fault_table(names, found):
    """Prints the table of faulty programs. @return how many were found."""
    head("case", "known from", "expected", "found first", "verdict")
    words = []
    for name in names:
        words.append(judge_faulty(CASES[name], found[f"{name}+faulty"]))
        row(name, CASES[name].known, CASES[name].expected, first(found[f"{name}+faulty"]), marked(words[-1], ("right", "named")))
    print()
    return len(words) - words.count("missed")


def silent_table(what, names, found):
    """Prints the table of correct programs. @return how many had no finding; hints are allowed."""
    head(what, "found first", "hints", "verdict")
    silent = 0
    for name in names:
        word = judge_silent(found[name])
        silent += word == "silent"
        hints = ", ".join(sorted({f["id"] for f in found[name]} - {f["id"] for f in above_hint(found[name])}))
        row(name.partition("+")[0], first(found[name]), hints, marked(word, ("silent",)))
    print()
    return silent


def main():
    parser = argparse.ArgumentParser()
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--full", action="store_true", help="all cases and clean programs, not the sample")
    chosen.add_argument("--held-out", action="store_true", help="the cases that were kept apart when the rules were made")
    parser.add_argument("--runs", type=pathlib.Path, default=BUILD / "tests" / "cases" / "check", help="folder of the traces")
    parser.add_argument("--match", default="", help="only cases whose name an expression finds: dropout, ^no-, head$")
    parser.add_argument("--record", action="store_true", help="make the traces, with the time of each, and check nothing")
    options = parser.parse_args()
    cases = [name for name in (HELD_OUT if options.held_out else FAULTY if options.full else SAMPLE)
             if re.search(options.match, name)]
    faulty, corrected = [f"{name}+faulty" for name in cases], [f"{name}+corrected" for name in cases]
    clean = CLEAN_HELD_OUT if options.held_out else CLEAN if options.full else CLEAN_SAMPLE
    clean = [f"{name}+clean" for name in clean if re.search(options.match, name)]
    names = [*faulty, *corrected, *clean]
    record(names, options.runs, quiet=not options.record)
    if options.record:
        return 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = dict(zip(names, pool.map(lambda name: check(name, options.runs), names)))
    told = fault_table(cases, found)
    silent = silent_table("corrected", corrected, found)
    silent_clean = silent_table("clean", clean, found) if clean else 0
    head("forms", "count", "good")
    row("faulty", str(len(faulty)), f"{told} told")
    row("corrected", str(len(corrected)), f"{silent} silent")
    row("clean", str(len(clean)), f"{silent_clean} silent")
    wanted = HELD_OUT_GOAL * len(faulty) if options.held_out else len(faulty)
    return 0 if told >= wanted and silent == len(corrected) and silent_clean == len(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
