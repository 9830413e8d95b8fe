"""The schedule of one command on a rented GPU: `--within`. Checks are ordered by the importance of what they decide. A check
that does not fit into the remaining time is left out and named, and a later, shorter one takes its place.

A check that measures time runs alone; those between two of these run several at once.
"""
import collections
import heapq
import itertools
import os

from .check import CHECKS

BEGIN = 25  # seconds until the first check: a machine that has not imported PyTorch yet takes so long
END = 5  # kept free for the last write of the archive
UNKNOWN = 30  # of a check without a row: two imports of PyTorch on such a machine

# check: what it decides, its seconds on an H100 with 16 cores beside others (docs/gpu-results/; assumed where it has not run)
ROWS = {
    "insertion under PyTorch: cnn": ("values come behind kernels of PyTorch", 20),
    "insertion under PyTorch: graph": ("values come behind graphs of PyTorch", 22),
    "insertion under PyTorch: triton_op": ("values come behind kernels of Triton", 20),
    "insertion under PyTorch": ("they come with lazy, eager and blocking launches", 70),
    "bits": ("statistics have the CPU's bits", 60),
    "outputs": ("what a kernel writes is found", 5),
    "ways to the driver": ("every launch passes the gate", 5),
    "NCCL's functions": ("every collective of NCCL is recorded with its values", 15),
    "NCCL under PyTorch": ("so are those of a DDP step, once", 20),
    "speed": ("the kernel runs at memory speed", 5),
    "launch cost": ("what a launch costs the host", 15),
    "kernels in an f32 step": ("what our kernels take inside an f32 step", 35),
    "kernels in a bf16 step": ("what our kernels take inside a bf16 step", 35),
    "GPT-like step": ("ratio of the f32 step", 35),
    "GPT-like step in bf16": ("ratio of the bf16 step", 30),
    "GPT-like step as a graph": ("ratio of the f32 step as a CUDA graph", 30),
    "GPT-like step in bf16 as a graph": ("ratio of the bf16 step as a CUDA graph", 30),
    "launch-bound step": ("ratio of a step that launches bound", 25),
    "ResNet-like step": ("ratio of a convolutional step", 30),
    "compiled regions": ("values of compiled regions, by name", 90),
    "Triton's values": ("what a Triton kernel writes, by its argument", 45),
    "two runs compared: stats": ("convtrace-diff of two runs, mode stats", 45),
    "two runs compared: snapshot": ("convtrace-diff of two runs, mode snapshot", 45),
    "two runs compared: hash": ("convtrace-diff of two runs, mode hash", 45),
    "insertion under PyTorch: compiled": ("values come behind kernels of Inductor", 45),
    "Triton's autotuning": ("benchmarks of Triton have no step", 35),
    "compiled graph trees": ("kernels of graph trees have their places", 50),
    "Triton's arguments": ("types of a Triton kernel's arguments are facts", 12),
    "two ranks, one faulty": ("a trace for each rank without a launcher", 16),
    "poison and quarantine: a correct program": ("poison disturbs no correct program", 22),
    "Inductor's autotuning": ("benchmarks of Inductor have no step", 90),
}

Planned = collections.namedtuple("Planned", "check start end")  # seconds; start None: it does not fit


def workers():
    """Checks at once: each runs a training, which wants a few cores."""
    return max(1, min(6, len(os.sched_getaffinity(0)) // 2))


def scheduled():
    """The checks of ROWS, in its order."""
    by_name = {one.name: one for one in CHECKS}
    return [by_name[name] for name in ROWS]


def seconds_of(check):
    return ROWS[check.name][1] if check.name in ROWS else UNKNOWN


def limit_of(check):
    """After which a check is killed: another driver or a cold machine may take twice as long, what hangs takes for ever."""
    return 2 * seconds_of(check) + 20


def groups(checks):
    """Neighbours that run at once; one that runs alone is a group."""
    for alone, group in itertools.groupby(checks, key=lambda check: check.alone):
        beside = list(group)
        yield from ([one] for one in beside) if alone else [beside]


def plan(checks, within, at_once):
    """@return each check's place in the time, as the runner gives it if all take the seconds that they are said to."""
    planned, now = [], float(BEGIN)
    for group in groups(checks):
        free = [now] * at_once
        for check in group:
            start = free[0]
            fits = start + seconds_of(check) <= within - END
            planned.append(Planned(check, start if fits else None, start + seconds_of(check) if fits else None))
            if fits:
                heapq.heapreplace(free, start + seconds_of(check))
        now = max(free)
    return planned


def show(planned, within, at_once):
    """The schedule for people."""
    yield "gpu-check: %d s, %d checks at once where none of them measures time; estimates of an H100" % (within, at_once)
    for check, start, end in planned:
        if start is not None:
            yield "%4.0f to %4.0f s  limit %3d s  %-5s  %-42s %s" % (
                start, end, limit_of(check), "alone" if check.alone else "", check.name, ROWS[check.name][0])
    for check, start, _ in planned:
        if start is None:
            yield "skipped: %s: its %d s do not fit" % (check.name, seconds_of(check))
    yield "ends at %.0f s" % (max((end for _, _, end in planned if end), default=BEGIN) + END)
