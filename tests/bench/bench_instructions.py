#!/usr/bin/env python3
"""Counts the instructions of a recorded launch without the driver's call: row launch.instructions, JSON on stdout.

usage: bench_instructions.py [--quick]    (the same)

callgrind counts the hook of `bench_launch --gated`, less what it calls: the launch function of the fake driver. Two
runs of different length are subtracted, which leaves out what the first launches do. On a busy machine instructions
tell more than times; time decides (launch.record).
"""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin" / "bench_launch"
FEW, MANY = 1, 9  # bursts, all of which fit into the ring of events
BURST = 1000  # kBurst of launch_bench.cpp
GOAL = 1400


def inclusive(listing, function):
    """The function's instructions with all that it calls; callgrind_annotate has a line for each file inlined into it."""
    counts = re.findall(r"^ *([\d,]+) \([^)]*\) .*\b%s\(" % function, listing, re.MULTILINE)
    return max(int(count.replace(",", "")) for count in counts)


def instructions(bursts, folder):
    counted = folder / str(bursts)
    subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={counted}", PROGRAM, "--gated", str(bursts)],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    listing = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", counted], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    return inclusive(listing, "on_launch") - inclusive(listing, "real_launch")


def main():
    row = dict(name="launch.instructions", unit="instructions", goal=f"<= {GOAL}", spread=0,
               against="absolute, by callgrind; 8 parameters, 4 pointers")
    if shutil.which("valgrind") is None or shutil.which("callgrind_annotate") is None:
        return print(json.dumps([dict(row, value=None, ok=None, why="not measured: valgrind is not installed")]))
    with tempfile.TemporaryDirectory() as folder:
        few, many = (instructions(bursts, pathlib.Path(folder)) for bursts in (FEW, MANY))
    value = (many - few) / ((MANY - FEW) * BURST)
    print(json.dumps([dict(row, value=value, ok=value <= GOAL)]))


if __name__ == "__main__":
    main()
