#!/usr/bin/env python3
"""Measures 200 steps under CONVTRACE_OVERHEAD=5% against the same steps without the preload: rows overhead.*; JSON on stdout.

usage: bench_overhead.py [--quick] [PROGRAM...]

A pair has two fresh processes, one plain and one traced, whose bursts of steps alternate. Times are wall times, which include
the writer thread; CPU times of the training thread are given as well. Step 0, in which packages and code are examined, is
left out. The tiny model cannot reach 5 %, which its trace must state.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench_observer import CONVTRACE, PRELOAD, ROOT, row, spread_of

ASKED, GOAL, STEPS, BURST = "5%", 1.06, 200, 10


def demo():
    sys.path.insert(0, str(ROOT / "tools" / "demo_gpt"))
    import train

    losses = train.training("correct", "c++", "cpu")
    return lambda step: next(losses)


def steps_of(model, batch):
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def take(step):
        optimizer.zero_grad()
        model(batch(step)).pow(2).mean().backward()
        optimizer.step()

    return take


def tiny():
    """Steps of 0.3 ms, of which calls of modules and the optimizer's hooks are a tenth."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    return steps_of(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), lambda step: torch.ones(16, 8))


def uneven():
    """Steps on 16 to 256 rows, in no order."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(512, 512), nn.GELU())]
    lengths = torch.randint(16, 257, (STEPS + 1,)).tolist()
    return steps_of(nn.Sequential(*layers), lambda step: torch.ones(lengths[step], 512))


PROGRAMS = {"demo": demo, "tiny": tiny, "uneven": uneven}


def worker(program):
    """Takes as many steps as each line says; answers with seconds, and with those of this thread."""
    take, first = PROGRAMS[program](), 0
    for line in sys.stdin:
        wall, own = time.perf_counter(), time.thread_time()
        count = int(line)
        for step in range(first, first + count):
            take(step)
        first += count
        print(time.perf_counter() - wall, time.thread_time() - own, flush=True)


class Program:
    def __init__(self, name, trace=None):
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
        if trace is not None:
            environment |= {"LD_PRELOAD": str(PRELOAD), "CONVTRACE_OUTPUT": str(trace), "CONVTRACE_OVERWRITE": "1",
                            "CONVTRACE_OVERHEAD": ASKED}
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", name], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.seconds = [0, 0]
        self.go(1)
        self.seconds = [0, 0]

    def go(self, steps):
        self.process.stdin.write("%d\n" % steps)
        self.process.stdin.flush()
        self.seconds = [a + float(b) for a, b in zip(self.seconds, self.process.stdout.readline().split())]

    def finish(self):
        self.process.stdin.close()
        if self.process.wait():
            sys.exit("bench_overhead: a program failed")


def measure(name, pairs, folder):
    trace, walls, owns, said = pathlib.Path(folder, name + ".ctrace"), [], [], []
    for pair in range(pairs):
        plain, traced = programs = Program(name), Program(name, trace)
        for burst in range(STEPS // BURST):
            for program in programs if (pair + burst) % 2 == 0 else reversed(programs):
                program.go(BURST)
        for program in programs:
            program.finish()
        wall, own = (a / b for a, b in zip(traced.seconds, plain.seconds))
        walls.append(wall)
        owns.append(own)
        info = subprocess.run([CONVTRACE, "info", "--json", trace], stdout=subprocess.PIPE, check=True)
        said.append(dict(json.loads(info.stdout)["meta"]["facts"])["overhead"])
    value = statistics.median(walls)
    more = {"own": round(statistics.median(owns), 4), "pairs": [round(wall, 4) for wall in walls], "said": said}
    result = row("overhead." + name, value, "ratio", GOAL, "%d steps without the preload" % STEPS, spread_of(walls) / value, **more)
    result["ok"] = result["ok"] or all("out of reach" in text for text in said)
    return result


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(sys.argv[2])
    pairs = 3 if "--quick" in sys.argv else 7
    names = [name for name in PROGRAMS if name in sys.argv] or PROGRAMS
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps([measure(name, pairs, folder) for name in names], indent=1))


if __name__ == "__main__":
    main()
