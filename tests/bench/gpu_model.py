#!/usr/bin/env python3
"""Timing model of the statistics kernels: marks of a launch in, the ratio of a training step out. Needs no GPU.

usage: gpu_model.py [--json]

A launch is waves of as many blocks as the device holds, which begin and end in step: each block finds its tensor, finds a
shift, runs its loop and adds up its threads. Behind them the design of the kernels counts: `tickets` (the last block of a
group, and of a tensor, merges; the last one writes the slot) or `logged` (blocks write partial results; one kernel folds
those of several values). The phases' times are fitted to marks of one kernel on one H100 (gpu_model.json), of which a
launch in a GPT-like step explains 86 % of what was measured. The rest, `in_program_us` a launch, is taken from the
measurement and kept for every design: its cause is not known (the first run of code that other kernels have pushed out of
the instruction caches is likely).

A design is an entry of DESIGNS. To judge a change before hardware has run it: change the phases that it changes, and compare.
"""
import argparse
import dataclasses
import functools
import json
import math
import pathlib

DATA = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
KIB = 1024
BLOCKS_PER_SM = 8
CHUNK_TURN = 4 * KIB  # bytes of a block in one turn of the loop
ISSUE = 4 * 32  # lanes of instructions that a multiprocessor begins in a clock
GROUP, MOST_TILES, MOST_RANGES = 64, 2048, 256  # cupti/stats/tile/tiling.h


@dataclasses.dataclass(frozen=True)
class Design:
    """Times in us; pairs: with one block on a multiprocessor, with eight."""
    find: tuple = (1.25, 2.9)  # the last block's keys and search for its tensor
    shift: tuple = (1.5, 3.0)  # not of hashes
    add_up: tuple = (1.1, 1.4)  # the threads of a block; half of it for hashes
    turn: float = 0.95  # one turn of the loop when latency bounds it
    first_loads: float = 2.0  # of a wave; 0.7 where each multiprocessor has one block
    ticket: float = 1.3  # a fence and an atomic; between two waves, too
    merge: float = 5.3  # one of the two levels
    slot: tuple = (3.0, 0.6, 0.36)  # to write a slot; a round of 64 ranges of hashes, and for each tile of a range
    gap: float = 1.3  # to the next kernel of a full stream
    instructions: tuple = (16.0, 13.0)  # of an element: f32, bf16 (kernel_report.py)
    hash_instructions: float = 14.4  # of 16 bytes
    most_tiles: int = 4096  # of a launch
    dedupe: bool = False  # a value that was read before, with nothing run in between, is not read again
    fold_every: int = 0  # values; 0: tickets
    fold_us: float = 14.0


_TICKETS = Design(merge=4.0, slot=(4.3, 1.2, 0.0))
_LOGGED = dataclasses.replace(_TICKETS, fold_every=16, ticket=0.3, most_tiles=32768, instructions=(15.2, 12.8), hash_instructions=12.2)
_PROLOGUE = {"find": (0.6, 1.0), "shift": (0.3, 0.5)}  # the shift from the first chunk, keys loaded beside it
DESIGNS = {
    "as measured (d87e342)": Design(),
    "tickets": _TICKETS,  # merges by word, shared factors of the slot
    "tickets, dedupe": dataclasses.replace(_TICKETS, dedupe=True),
    "log and fold": dataclasses.replace(_LOGGED, **_PROLOGUE),
    "log and fold, dedupe": dataclasses.replace(_LOGGED, dedupe=True, **_PROLOGUE),  # as it is, not run on hardware
}
MEASURED = DESIGNS["as measured (d87e342)"]


@dataclasses.dataclass(frozen=True)
class Value:
    bytes: int
    is_hash: bool = False
    is_half: bool = False
    is_again: bool = False


@dataclasses.dataclass
class Step:
    """The time that a step's launches add, in us, without `in_program_us`."""
    kernels: float = 0.0
    gaps: float = 0.0
    launches: int = 0
    bytes: int = 0

    def added_ms(self, in_program_us):
        return (self.kernels + self.gaps + self.launches * in_program_us) / 1e3


def units(size, smallest, most):
    """@return (size, count) of pieces whose size is a power of two times `smallest`, at most `most`."""
    unit = smallest
    while math.ceil(size / unit) > most:
        unit *= 2
    return unit, max(1, math.ceil(size / unit))


class Tensor:
    def __init__(self, size):
        tile, self.tiles = units(size, 16 * KIB, MOST_TILES)
        self.tile_bytes = [tile] * (self.tiles - 1) + [size - tile * (self.tiles - 1)]
        self.tiles_of_group = math.ceil(self.tiles / GROUP)
        self.groups = math.ceil(self.tiles / self.tiles_of_group)
        range_bytes, self.ranges = units(size, 64 * KIB, MOST_RANGES)
        self.tiles_of_range = range_bytes // tile


class Model:
    def __init__(self, device, design):
        self.device, self.design = DATA["devices"][device], design
        self.resident = self.device["multiprocessors"] * BLOCKS_PER_SM

    def rate(self, value):
        """Bytes a us of a loop on the full device: what memory gives, or what the instructions allow."""
        design, issued = self.design, self.device["multiprocessors"] * ISSUE * self.device["clock_ghz"] * 1e3
        a_byte = design.hash_instructions / 16 if value.is_hash else design.instructions[1] / 2 if value.is_half else design.instructions[0] / 4
        return min(self.device["loop_tb_per_s"] * 1e6, issued / a_byte)

    def loaded(self, pair, blocks):
        """A phase's time by the blocks on a multiprocessor."""
        share = (min(BLOCKS_PER_SM, math.ceil(blocks / self.device["multiprocessors"])) - 1) / (BLOCKS_PER_SM - 1)
        return pair[0] + (pair[1] - pair[0]) * share

    def waves(self, values, tensors):
        """Until the last block of a launch has its part."""
        design, only_hashes = self.design, all(value.is_hash for value in values)
        tiles = [(size, self.rate(value)) for value, tensor in zip(values, tensors) for size in tensor.tile_bytes]
        total = 0.0
        for first in range(0, len(tiles), self.resident):
            wave = tiles[first:first + self.resident]
            turns = max(1, math.ceil(max(size for size, _ in wave) / CHUNK_TURN))
            start = design.first_loads if len(wave) > self.device["multiprocessors"] else 0.7
            total += (self.loaded(design.find, len(wave)) + max(turns * design.turn, start + sum(size / rate for size, rate in wave)) +
                      self.loaded(design.add_up, len(wave)) * (0.5 if only_hashes else 1) +
                      (0 if only_hashes else self.loaded(design.shift, len(wave))) + (design.ticket if first else 0))
        return total

    def launch(self, values):
        """One kernel's duration, from its first block's begin to its end."""
        design, tensors = self.design, [Tensor(value.bytes) for value in values]
        total = self.waves(values, tensors)
        if design.fold_every:
            return total
        largest = max(tensors, key=lambda tensor: tensor.groups)
        merge = 0 if all(value.is_hash for value in values) else design.merge
        total += (design.ticket + merge) * ((largest.tiles_of_group > 1) + (largest.groups > 1))
        fixed, of_round, of_tile = design.slot
        slot = 3.0 if largest.ranges == 1 else fixed + math.ceil(largest.ranges / 64) * (of_round + of_tile * largest.tiles_of_range)
        return total + max(slot, 3.0 + 14.0 * len(values) / 1000 if len(values) > MOST_TENSORS else 0)  # slots over PCIe

    def step(self, submissions):
        """@param submissions  (how often in a step, values)."""
        step, values = Step(), 0
        for times, submitted in submissions:
            kept = [value for value in submitted if not (self.design.dedupe and value.is_again)]
            for part in launches_of(kept, self.design.most_tiles):
                step.kernels += times * self.launch(part)
                step.launches += times
                step.bytes += times * sum(value.bytes for value in part)
            values += times * len(kept)
        if self.design.fold_every:
            folds = values // self.design.fold_every + 1
            step.kernels += folds * self.design.fold_us
            step.launches += folds
        step.gaps = step.launches * self.design.gap
        return step


MOST_TENSORS = 107  # whose descriptions are parameters of a launch


def launches_of(values, most_tiles):
    parts, tiles = [[]], 0
    for value in values:
        count = Tensor(value.bytes).tiles
        if parts[-1] and (len(parts[-1]) == MOST_TENSORS or tiles + count > most_tiles):
            parts.append([])
            tiles = 0
        parts[-1].append(value)
        tiles += count
    return [part for part in parts if part]


def submissions(kind):
    """@return the submissions of the step. `kind`: `f32`, `bf16` (autocast), or `hash` (f32, mode hash)."""
    return [(times, [Value(half if kind == "bf16" else full, "hash" in (kind, what), kind == "bf16" and half != full, bool(again))
                     for full, half, what, again, count in values for _ in range(count)])
            for times, values in DATA["step"]["rows"]]


@functools.cache
def in_program_us():
    """@return the time per launch in a step that its marks and the gap do not explain."""
    step = Model("H100", MEASURED).step(submissions("f32"))
    return (DATA["measured"]["added_ms"] - step.added_ms(0)) * 1e3 / step.launches


def predict(device, design, kind):
    """@return (ms added to a step, ratio of the step to a plain one)."""
    added = Model(device, DESIGNS[design]).step(submissions(kind)).added_ms(in_program_us())
    plain = DATA["devices"][device]["plain_ms"]["bf16" if kind == "bf16" else "f32"]
    return added, 1 + added / plain


def main():
    parser = argparse.ArgumentParser(description="Predicts what the statistics kernels add to a GPT-like step.")
    parser.add_argument("--json", action="store_true", help="one object a line, for scripts")
    as_json = parser.parse_args().json
    rows = [{"device": device, "design": design, "step": kind, "added_ms": round(added, 2), "ratio": round(ratio, 3)}
            for device in DATA["devices"] for design in DESIGNS for kind in ("f32", "bf16", "hash")
            for added, ratio in [predict(device, design, kind)]]
    for row in rows:
        print(json.dumps(row) if as_json else "{device}  {design:24} {step:5} {added_ms:6.2f} ms  ratio {ratio:.3f}".format(**row))


if __name__ == "__main__":
    main()
