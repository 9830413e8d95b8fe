#!/usr/bin/env python3
"""Trains the runs whose names come on stdin, each in a fork, under the preload: train.py FOLDER [STEPS].

A trace is one process's, and importing PyTorch costs more than a run: so a process that imported it, and computed
nothing, forks for each. FOLDER gets NAME.ctrace, and for each model its modules in order: MODEL.modules.
"""
import os
import pathlib
import sys

import torch
import torch._dynamo  # noqa: F401 - the first optimizer would import it
from torch import nn

import held_out
import held_out_2
import held_out_3
import held_out_4
import held_out_5
import held_out_6
import models
import training
from faults import FAULTS

MODELS = held_out.MODELS | held_out_2.MODELS | held_out_3.MODELS | held_out_4.MODELS | held_out_5.MODELS | held_out_6.MODELS | {
    "gpt": (models.Gpt, training.tokens(8, models.LENGTH, models.VOCABULARY), training.adamw, {}),
    "conv": (models.Conv, training.pictures(16, 32), training.adamw, {}),
    "lstm": (models.Lstm, training.tokens(8, 24, models.VOCABULARY), training.adamw, {"criterion": nn.CrossEntropyLoss}),
}


def train(name, folder, steps):
    model, precision, what = name.split("-")
    variant, _, fault = what.partition("+")
    build, draw, optimizer, options = MODELS[model]
    options = options | steps
    run = training.Training(build, draw, optimizer, precision=precision, variant=variant, **options)
    order = folder / f"{model}.modules"
    if not order.exists():
        order.write_text("\n".join(name for name, _ in run.model.named_modules()))
    if fault:
        fault = FAULTS[fault]
        place = fault.module(model)
        run.run(lambda run: fault.plant(run, None if place is None else run.at(place)), fault.since)
    else:
        run.run()


def main(folder, steps):
    for name in sys.stdin.read().split():
        unfinished = folder / f"{name}.part"
        os.environ["CONVTRACE_OUTPUT"] = str(unfinished)
        os.environ.pop("ATEN_CPU_CAPABILITY", None)
        capability = {"simd": "default", "avx2": "avx2"}.get(name.split("-")[2].partition("+")[0])
        if capability:
            os.environ["ATEN_CPU_CAPABILITY"] = capability
        child = os.fork()
        if child == 0:
            train(name, folder, steps)
            sys.exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"{name} failed")
        unfinished.rename(folder / f"{name}.ctrace")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), {"steps": int(sys.argv[2])} if len(sys.argv) > 2 else {})
