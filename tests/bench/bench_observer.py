#!/usr/bin/env python3
"""What tracing costs a training step on the CPU: rows observer.step_*, JSON on stdout.

usage: bench_observer.py [--quick]

Three copies of the demo's training run side by side, one plain and one for each way of tracing. Only one works at a
time; bursts of steps alternate between them, so a drift of the machine hits all alike.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRELOAD = ROOT / "build" / "release" / "lib" / "libconvtrace.so"
STEPS_PER_SAMPLE = 5
WARM_UP_SAMPLES = 2
GOALS = {"launches": 1.10, "stats": 1.40}


def worker():
    """Runs a burst of steps for each line read; answers with its seconds."""
    sys.path.insert(0, str(ROOT / "tools" / "demo_gpt"))
    import train

    losses = train.training("correct", "cpu")
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(STEPS_PER_SAMPLE):
            next(losses)
        print(time.perf_counter() - start, flush=True)


class Training:
    def __init__(self, mode, folder):
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
        self.trace = pathlib.Path(folder, f"{mode}.ctrace")
        if mode != "plain":
            environment |= {
                "LD_PRELOAD": str(PRELOAD), "CONVTRACE_MODE": mode, "CONVTRACE_OUTPUT": str(self.trace)
            }
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker"], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )

    def sample(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def finish(self):
        self.process.stdin.close()
        return self.process.wait()


def row(name, goal, ratios, trace_bytes):
    quarters = statistics.quantiles(ratios)
    median = statistics.median(ratios)
    return {
        "name": name, "value": round(median, 4), "unit": "ratio", "goal": f"<= {goal:g}",
        "against": "the demo's step on the CPU without the preload", "ok": median <= goal,
        "spread": round((quarters[2] - quarters[0]) / median, 3), "trace_bytes": trace_bytes,
    }


def main():
    pairs = 15 if "--quick" in sys.argv else 45
    with tempfile.TemporaryDirectory() as folder:
        plain = Training("plain", folder)
        traced = {mode: Training(mode, folder) for mode in GOALS}
        everyone = [plain, *traced.values()]
        for training in everyone * WARM_UP_SAMPLES:
            training.sample()
        ratios = {mode: [] for mode in GOALS}
        for pair in range(pairs):
            # The order alternates too.
            order = everyone if pair % 2 == 0 else everyone[::-1]
            seconds = {training: training.sample() for training in order}
            for mode, training in traced.items():
                ratios[mode].append(seconds[training] / seconds[plain])
        if any([training.finish() for training in everyone]):
            sys.exit("bench_observer: a training failed")
        sizes = {mode: training.trace.stat().st_size for mode, training in traced.items()}
    print(json.dumps([row(f"observer.step_{mode}", GOALS[mode], ratios[mode], sizes[mode]) for mode in GOALS]))


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
