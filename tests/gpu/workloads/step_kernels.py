"""Profiles one training step by torch.profiler: durations of convtrace's kernels, and the gaps before them."""
import collections
import json
import os
import time

from common import arguments, deterministic, finish
from models import profiler
from training_worker import GPTS, scene_of

WARM, TIMED = 3, 10  # steps
OURS = "convtrace"  # how names of its kernels begin


def kernels(path):
    """@return the kernels of a Chrome trace, in the order in which they ran."""
    with open(path) as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("cat") == "kernel"]
    return sorted(events, key=lambda one: one["ts"])


def median(values):
    return sorted(values)[len(values) // 2] if values else 0.0


def rows(events):
    """@return for each of our kernels and grids: launches, median duration, sum of durations, median gap to the kernel before."""
    found = collections.defaultdict(list)
    for before, one in zip([None] + events[:-1], events):
        if one["name"].startswith(OURS):
            gap = one["ts"] - before["ts"] - before["dur"] if before else 0.0
            found[one["name"], tuple(one["args"]["grid"])].append((one["dur"], gap))
    return [{"kernel": name, "grid": grid, "launches": len(seen), "us": median([us for us, _ in seen]),
             "sum_us": sum(us for us, _ in seen), "gap_us": median([gap for _, gap in seen])} for (name, grid), seen in sorted(found.items())]


def main():
    args = arguments(__doc__, size=[*GPTS, *(size + "+bf16" for size in GPTS)])
    torch = deterministic(strict=False)
    scene = scene_of(torch, args.device, args.size)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None

    def steps(count):
        for _ in range(count):
            scene.step()
        wait()

    steps(WARM)
    start = time.perf_counter()
    steps(TIMED)
    step_ms = (time.perf_counter() - start) * 1e3 / TIMED
    with profiler(torch, args.device) as profile:
        steps(1)
    path = args.out + ".chrome"
    profile.export_chrome_trace(path)
    events = kernels(path)
    os.remove(path)
    finish(args.out, step_ms=step_ms, kernels=len(events), ours=rows(events))


if __name__ == "__main__":
    main()
