#!/usr/bin/env python3
"""Measures the cost of tracing for a training step on the CPU, a module call and a value (rows observer.*), and for a compiled
step (rows compiled.*); JSON on stdout.

usage: bench_observer.py [--quick] [--compiled]    (--compiled: these rows alone, and compiled.compile)

Copies of a program run side by side, one plain and one for each way of tracing. Only one works at a time; bursts of
steps alternate between them, so a drift of the machine hits all alike. Times are CPU times of the thread that trains.

The rows *_every50 are computed from two measurements: 49 steps without values and one step with values. A burst that is long
enough for both would take minutes.
"""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRELOAD = ROOT / "build" / "release" / "lib" / "libconvtrace.so"
CONVTRACE = ROOT / "build" / "release" / "bin" / "convtrace"
STEPS_PER_SAMPLE = 5
WARM_UP_SAMPLES = 2
CALLS_PER_SAMPLE = 20_000
VALUE_CALLS_PER_SAMPLE, VALUES = 250, 32
COLLECTIVES_PER_SAMPLE = 500
TINY_STEPS_PER_SAMPLE, SMALL_STEPS_PER_SAMPLE = 250, 100
# A step that never comes, and no word that it did not.
NOTHING = {"CONVTRACE_STEPS": "4000000000", "CONVTRACE_LOG": "error"}
WAYS = {
    "launches": {"CONVTRACE_MODE": "launches", "CONVTRACE_LOG": "error"}, "stats": {"CONVTRACE_MODE": "stats"},
    "nothing": NOTHING, "hash": {"CONVTRACE_MODE": "hash"},
    "snapshot": {"CONVTRACE_MODE": "snapshot", "CONVTRACE_ALL": "1", "CONVTRACE_LOG": "error"},
    **{"compiled_" + which: {"CONVTRACE_COMPILED": which} for which in ("off", "calls", "all")}}
COMPILED = {"compiled_off": 1.02, "compiled_calls": 1.05, "compiled_all": 1.35}
MODES = ("launches", "hash", "stats", "snapshot")  # from cheap to dear
GOALS = {"step": {"launches": 1.015, "stats": 1.15, "every50": 1.02}, "tiny_step": {"stats": 1.35, "every50": 1.04}}
MODULE_CALL_GOAL_US, VALUE_GOAL_US, COLLECTIVE_GOAL_US = 0.5, 2.5, 3
TOLD_COST_GOAL = 0.25
COMPILE_GOAL, COMPILATIONS = 1.02, 5
ORDER_GOAL = 1.02  # what is alike within noise is in order


def training_steps():
    sys.path.insert(0, str(ROOT / "tools" / "demo_gpt"))
    import train

    losses = train.training("correct", "c++", "cpu")
    return lambda: [next(losses) for _ in range(STEPS_PER_SAMPLE)]


def module_calls():
    import torch

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Identity()

        def forward(self, x):
            for _ in range(CALLS_PER_SAMPLE):
                self.inner(x)

    model, x = Outer(), torch.zeros(1)
    return lambda: model(x)


def tiny_steps():
    """Steps that take less time than tracing them."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=1e-3), torch.ones(3, 4)

    def burst():
        for _ in range(TINY_STEPS_PER_SAMPLE):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    return burst


def small_steps():
    """Steps with 78 values, the largest of 512 bytes."""
    import torch

    torch.set_num_threads(1)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.activation, self.b = torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8)

        def forward(self, x):
            return x + self.b(self.activation(self.a(x)))

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Block(), Block(), Block(), torch.nn.Linear(8, 8))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), torch.randn(16, 8)

    def burst():
        for _ in range(SMALL_STEPS_PER_SAMPLE):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()

    return burst


def compiled_steps(width=128, blocks=4, tokens=128):
    """Steps of a GPT that Inductor compiled, of four sequences, on one thread."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (one.unflatten(-1, (4, -1)).transpose(1, 2) for one in self.qkv(self.before(x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norm(x))))

    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(256, width), *[Block() for _ in range(blocks)], nn.Linear(width, 256))
    run, optimizer = torch.compile(model), torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randint(256, (4, tokens))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(run(x).flatten(0, 1), x.flatten()).backward()
        optimizer.step()

    return lambda: [step() for _ in range(STEPS_PER_SAMPLE)]


def calls_with_values(count):
    """Calls of a module that returns new tensors of 512 bytes."""
    import torch

    class Values(torch.nn.Module):
        def forward(self):
            return [torch.empty(16, 8) for _ in range(count)]

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Values()

        def forward(self):
            for _ in range(VALUE_CALLS_PER_SAMPLE):
                self.inner()

    return Outer()


def collectives():
    """Sums of a group of one, which gloo has at once."""
    import torch

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    x = torch.ones(8)

    def burst():
        for _ in range(COLLECTIVES_PER_SAMPLE):
            torch.distributed.all_reduce(x)

    # Values are not wanted from the first step on.
    torch.nn.Linear(1, 1)(torch.ones(1))
    return burst


WORKS = {"collectives": collectives, "steps": training_steps, "calls": module_calls, "tiny": tiny_steps, "tiny_steps": small_steps,
         "compiled_steps": compiled_steps,
         "value": lambda: calls_with_values(1), "values": lambda: calls_with_values(1 + VALUES)}


def worker(work):
    """Does a burst of work for each line read; answers with the seconds of this thread and of programs that it waited for."""
    def spent():
        programs = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.thread_time() + programs.ru_utime + programs.ru_stime

    burst = WORKS[work]()
    for _ in sys.stdin:
        start = spent()
        burst()
        print(spent() - start, flush=True)


class Program:
    def __init__(self, work, way, folder, **settings):
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")} | settings
        self.trace = pathlib.Path(folder, f"{work}-{way}.ctrace")
        if way != "plain":
            environment |= {"LD_PRELOAD": str(PRELOAD), "CONVTRACE_OUTPUT": str(self.trace), **WAYS[way]}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", work], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )

    def sample(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def finish(self):
        self.process.stdin.close()
        return self.process.wait()


def measure(work, ways, pairs, folder, warm_up=WARM_UP_SAMPLES):
    """Seconds of bursts, by way, "plain" among them; and the traces."""
    programs = {way: Program(work, way, folder) for way in ("plain", *ways)}
    for program in [*programs.values()] * warm_up:
        program.sample()
    seconds = {way: [] for way in programs}
    for pair in range(pairs):
        order = [*programs] if pair % 2 == 0 else [*programs][::-1]  # the order alternates too
        for way in order:
            seconds[way].append(programs[way].sample())
    if any([program.finish() for program in programs.values()]):
        sys.exit(f"bench_observer: a program of {work} failed")
    return seconds, {way: programs[way].trace for way in ways}


def spread_of(values):
    quarters = statistics.quantiles(values)
    return quarters[2] - quarters[0]


def row(name, value, unit, goal, against, spread, **more):
    return {
        "name": name, "value": round(value, 4), "unit": unit, "goal": f"<= {goal:g}", "against": against,
        "ok": value <= goal, "spread": round(spread, 3), **more,
    }


def order_row(ratios):
    """Compares the cost of each mode with the next one, which should cost more. @return the worst ratio."""
    name, against = "observer.modes_order", "the next mode of launches, hash, stats, snapshot; the worst pair"
    pairs = [[a / b for a, b in zip(ratios[cheap], ratios[dear])] for cheap, dear in zip(MODES, MODES[1:])]
    worst = max(pairs, key=statistics.median)
    return row(name, statistics.median(worst), "ratio", ORDER_GOAL, against, spread_of(worst),
               steps={mode: round(statistics.median(ratios[mode]), 3) for mode in MODES})


def step_rows(name, against, pairs, folder, ways):
    """@return rows, and the ratios to the plain step by way."""
    seconds, traces = measure(name + "s", ways, pairs, folder)
    ratios = {way: [a / b for a, b in zip(seconds[way], seconds["plain"])] for way in ways}
    ratios["every50"] = [(49 * none + one) / 50 for none, one in zip(ratios["nothing"], ratios["stats"])]
    return [row(f"observer.{name}_{way}", statistics.median(ratios[way]), "ratio", goal, against,
                spread_of(ratios[way]) / statistics.median(ratios[way]),
                trace_bytes=traces[way].stat().st_size if way in traces else None)
            for way, goal in GOALS[name].items()], ratios


def compiled_rows(pairs, folder):
    seconds, _ = measure("compiled_steps", COMPILED, pairs, folder)
    rows = []
    for way, goal in COMPILED.items():
        ratios = [a / b for a, b in zip(seconds[way], seconds["plain"])]
        rows.append(row("compiled.step_" + way.removeprefix("compiled_"), statistics.median(ratios), "ratio", goal,
                        "the same compiled step without the preload", spread_of(ratios) / statistics.median(ratios)))
    return rows


def compile_row():
    """Measures the cost of tracing in the first steps, in which everything is compiled, also by the C++ compiler. Each program
    has an empty cache, and they run one after the other."""
    ratios = []
    for pair in range(COMPILATIONS):
        seconds = {}
        for way in ("plain", "compiled_calls")[::1 if pair % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory() as cache:
                program = Program("compiled_steps", way, cache, TORCHINDUCTOR_CACHE_DIR=cache, TORCHINDUCTOR_COMPILE_THREADS="1")
                seconds[way] = program.sample()
                if program.finish():
                    sys.exit("bench_observer: a program that compiles failed")
        ratios.append(seconds["compiled_calls"] / seconds["plain"])
    return row("compiled.compile", statistics.median(ratios), "ratio", COMPILE_GOAL,
               "the first %d steps without the preload, caches empty" % STEPS_PER_SAMPLE,
               spread_of(ratios) / statistics.median(ratios))


def value_row(pairs, folder):
    """Measures the cost of one additional value."""
    added = []
    for work in ("value", "values"):
        seconds, _ = measure(work, ["stats"], pairs, folder)
        added.append([a - b for a, b in zip(seconds["stats"], seconds["plain"])])
    each = [1e6 * (many - one) / (VALUES * VALUE_CALLS_PER_SAMPLE) for one, many in zip(*added)]
    median = statistics.median(each)
    return row("observer.value_us", median, "us", VALUE_GOAL_US, "the same tensor of 512 bytes without the preload",
               spread_of(each) / median)


def call_row(pairs, folder):
    seconds, _ = measure("calls", ["nothing"], pairs, folder)
    added = [1e6 * (a - b) / CALLS_PER_SAMPLE for a, b in zip(seconds["nothing"], seconds["plain"])]
    median = statistics.median(added)
    return row(
        "observer.module_call", median, "us", MODULE_CALL_GOAL_US, "the same call without the preload",
        spread_of(added) / median,
    )


def collective_row(pairs, folder):
    """Measures the cost of a collective without the statistics of its tensors."""
    seconds, _ = measure("collectives", ["nothing"], pairs, folder)
    added = [1e6 * (a - b) / COLLECTIVES_PER_SAMPLE for a, b in zip(seconds["nothing"], seconds["plain"])]
    median = statistics.median(added)
    return row("observer.collective_us", median, "us", COLLECTIVE_GOAL_US, "the same call without the preload",
               spread_of(added) / median)


def told_cost_row(pairs, folder):
    """Compares the cost of tracing that `convtrace info` reports with the time by which the same steps took longer."""
    seconds, traces = measure("tiny", ["stats"], pairs, folder, warm_up=0)  # it tells of the first step, too
    added = [a - b for a, b in zip(seconds["stats"], seconds["plain"])]
    info = subprocess.run([CONVTRACE, "info", "--json", traces["stats"]], stdout=subprocess.PIPE, check=True)
    told = json.loads(info.stdout)["cost"]["host_ns"] * 1e-9
    return row(
        "observer.told_cost_error", abs(told / sum(added) - 1), "of it", TOLD_COST_GOAL,
        "the time that tracing adds to %d tiny steps" % (pairs * TINY_STEPS_PER_SAMPLE),
        spread_of(added) / statistics.median(added), told_s=round(told, 3), added_s=round(sum(added), 3),
    )


def main():
    pairs = 15 if "--quick" in sys.argv else 45
    with tempfile.TemporaryDirectory() as folder:
        compiled = compiled_rows(pairs, folder)
        if "--compiled" in sys.argv:
            return print(json.dumps([*compiled, compile_row()]))
        tiny, _ = step_rows("tiny_step", "a step with 78 values of at most 512 bytes without the preload", pairs, folder,
                            {way: WAYS[way] for way in ("stats", "nothing")})
        steps, ratios = step_rows("step", "the demo's step on the CPU without the preload", pairs, folder, WAYS)
        print(json.dumps([call_row(pairs, folder), value_row(pairs, folder), collective_row(pairs, folder), told_cost_row(pairs, folder),
                          *tiny, *steps, order_row(ratios), *compiled]))


if __name__ == "__main__":
    worker(sys.argv[2]) if "--worker" in sys.argv else main()
