"""Each mutation of README.md is noticed by its case with its seed, on a loaded machine maybe not the first time;
without it the case passes with that seed.

usage: mutations.py PROGRAM LIBRARY [--search]
LIBRARY: what is installed; no mutation is in it.
--search: prints for each mutation the first seed up to 50 that notices it five times in a row, and what the case then
said. Nothing of the program's threads is in a seed, so one time is not enough.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[4]
TABLE = pathlib.Path(__file__).resolve().with_name("README.md")
ROW = re.compile(r"\| \d+ \| `(\w+)` \|[^|]*\| `(\[\w+\])` \| (\d+) \|")
MOST_SEEDS = 50
TIMES = 5
AT_ONCE = 4  # some wait for seconds until they give up
HANGS_S = 60  # a call that waits for ever: the program itself gives up sooner


def run(program, case, seed, mutation=""):
    """Returns whether the case passed, and what it said."""
    environment = {**os.environ, "FAKECUDA_SEED": str(seed), "CONVTRACE_MUTATION": mutation}
    try:
        done = subprocess.run([program, case], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        return False, "does not end"
    return done.returncode == 0, done.stdout


def search(program, row):
    mutation, case, _ = row
    for seed in range(1, MOST_SEEDS + 1):
        runs = [run(program, case, seed, mutation) for _ in range(TIMES)]
        if not any(passed for passed, _ in runs):
            said = runs[0][1]
            return "%s %s seed %d\n%s\n" % (mutation, case, seed, said[-1500:])
    return "%s %s is not noticed" % (mutation, case)


def check(program, row):
    """Returns what is wrong with a row, or nothing."""
    mutation, case, seed = row
    passed, said = run(program, case, seed)
    if not passed:
        return "%s fails with seed %s\n%s" % (case, seed, said[-2000:])
    if all(run(program, case, seed, mutation)[0] for _ in range(TIMES)):  # of which one has to notice it
        return "%s is not noticed by %s with seed %s" % (mutation, case, seed)
    return ""


def check_marks(library, rows):
    marks = {name for path in (SOURCE / "cupti").rglob("*.[ch]*") if path.name != "mutation.h"
             for name in re.findall(r"\bMUTATION\((\w+)\)", path.read_text())}
    listed = {mutation for mutation, _, _ in rows}
    if marks != listed:
        yield "marked in cupti/ alone or listed in %s alone: %s" % (TABLE.relative_to(SOURCE), sorted(marks ^ listed))
    installed = pathlib.Path(library).read_bytes()
    for name in marks:
        if name.encode() + b"\0" in installed:
            yield "%s is in %s" % (name, library)


def main(program, library, *options):
    rows = ROW.findall(TABLE.read_text())
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        if "--search" in options:
            print(*pool.map(lambda row: search(program, row), rows), sep="\n")
            return 0
        wrong = [text for text in pool.map(lambda row: check(program, row), rows) if text]
    wrong += check_marks(library, rows)
    print(*wrong, "%d mutations, %d complaints" % (len(rows), len(wrong)), sep="\n")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
