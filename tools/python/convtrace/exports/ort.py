"""Exports statistics of module outputs and their gradients as the text files of ONNX Runtime's StatisticsSubscriber.

The files are `step_N/NAME_forward`, `step_N/NAME_backward`, and `step_N/order.txt` with their names in order of execution.
Each of several traces has a folder, and `merge_TRACE/step_N_.txt` holds the files of a step in the order of the first
trace's first step, as merge_activation_summary.py makes them, so that a text diff aligns them. Unlike ONNX Runtime's, mean
and std are correct in every dtype, and minimum and maximum are those of the finite values.
"""
import math
import os
import re
import sys

from .numbers import std_of_sample, torch_dtype

SEPARATE = True  # several traces get a folder each

_SLOT = re.compile(r"(output|grad_output):(\d+)")
_STEP_FOLDER = re.compile(r"step_\d+")
_MERGED = "merge_"


def is_export(folder):
    """@return whether `folder` is an earlier export: it has folders of steps, or of traces."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        return False
    names = os.listdir(folder)
    if not all(os.path.isdir(os.path.join(folder, name)) for name in names):
        return False
    return all(_STEP_FOLDER.fullmatch(name) for name in names) or any(name.startswith(_MERGED) for name in names)


def export(trace, name, folder):
    """Writes into `folder`. Names in a trace do not become paths."""
    order, step = [], None
    for event in trace:
        slot = _SLOT.fullmatch(event["slot"]) if event["record"] == "stats" and not event["op"] else None
        if slot is None or "mean" not in event:
            continue
        if event["step"] != step:
            _write_order(folder, step, order)
            order, step = [], event["step"]
        is_forward = slot.group(1) == "output"
        tensor = "%s_%sth_output" % (_module_name(event), slot.group(2))
        file = re.sub(r"[^A-Za-z0-9_.\-]", "_", tensor)[-200:] + ("_forward" if is_forward else "_backward")
        path = os.path.join(folder, "step_%d" % step)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, file), "w", encoding="utf-8") as out:
            out.write(_summary(event, tensor + (" forward run" if is_forward else " backward run")))
        order.append(file)
    _write_order(folder, step, order)


def finish(folder, names):
    """Merges the traces `names`, each in its folder, step by step."""
    order = []
    for step in _steps(os.path.join(folder, names[0]))[:1]:
        with open(os.path.join(folder, names[0], step, "order.txt"), encoding="utf-8") as file:
            order = list(dict.fromkeys(file.read().splitlines()))
    for name in names:
        os.makedirs(os.path.join(folder, _MERGED + name))
        for step in _steps(os.path.join(folder, name)):
            with open(os.path.join(folder, _MERGED + name, step + "_.txt"), "w", encoding="utf-8") as merged:
                for file in order:
                    try:
                        with open(os.path.join(folder, name, step, file), encoding="utf-8") as one:
                            merged.write(one.read() + "\n")
                    except FileNotFoundError:
                        print("convtrace: tensor %s not exist" % os.path.join(name, step, file), file=sys.stderr)


def _steps(folder):
    if not os.path.isdir(folder):
        return []
    return sorted((name for name in os.listdir(folder) if _STEP_FOLDER.fullmatch(name)), key=lambda name: int(name[5:]))


def _write_order(folder, step, order):
    if order:
        with open(os.path.join(folder, "step_%d" % step, "order.txt"), "a", encoding="utf-8") as file:
            file.write("".join(name + "\n" for name in order))


def _module_name(event):
    """A module that runs several times in a step has the number of its call in its name."""
    scope = event["scope"] or "root"
    return scope if event["call"] == 0 else "%s_call%d" % (scope, event["call"])


def _summary(event, title):
    depth = 1 + (event["scope"].count(".") + 1 if event["scope"] else 0)
    samples = event["leading"] or event["samples"]
    which = "top" if event["leading"] else "evenly spread"
    return (
        "%s%s shape: torch.Size(%s) dtype: %s size: torch.Size([%d]) \n" % (
            ">" * depth, title, event["shape"], torch_dtype(event["dtype"]), event["count"])
        + "min: %s max: %s, mean: %s, std: %s \n" % (
            event["min"], event["max"], event["mean"], std_of_sample(event))
        + "nan: %d, inf: %d\n" % (event["nan"], event["pos_inf"] + event["neg_inf"])
        + "samples(%s %d): tensor([%s])\n" % (which, len(samples), ", ".join(_sample(value) for value in samples))
        + "neg: %d, pos: %d, zero: %d,\n" % (event["negative"], event["positive"], event["pos_zero"] + event["neg_zero"])
        + "=" * 16 + "\n")


def _sample(value):
    return "%.6g" % value if isinstance(value, float) and math.isfinite(value) else str(value)
