"""Exports numbers of each step for TensorBoard: a trace is a run.

Scalars are `loss` (the mean if a step has several), `loss_scale`, `norm/gradients`, `norm/gradients_unclipped`,
`norm/parameters` (after the update), the same norms of modules as `gradients/MODULE` and `parameters/MODULE`,
`update_ratio/largest` (norm of a parameter's update divided by the parameter's norm, estimated from sketches), `nan` and
`inf` (numbers of elements in all values), and `overhead` (of tracing, if the trace has it). Findings are texts.
"""
import math
import os
import re

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

SEPARATE = True

_SUFFIX = ".convtrace"
_FILE = re.compile(r"events\.out\.tfevents\..*" + re.escape(_SUFFIX))
_MODULES = 64  # of each kind; deeper ones are joined with those around them
_NORMS = {"grad": "gradients", "grad_unclipped": "gradients_unclipped", "param": "parameters"}


def is_export(folder):
    """@return whether `folder` is an earlier export of one or several traces, without other files."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        return False
    return all(_FILE.fullmatch(name) for place, folders, names in os.walk(folder) for name in names)


def export(trace, name, folder):
    """Writes an event file into `folder`."""
    for _ in follow(trace, folder):
        pass


def follow(trace, folder):
    """Exports a trace that may be growing: yields when the trace has no further event now, after the numbers of finished
    steps were written to disk."""
    file = EventFileWriter(folder, max_queue_size=1000, filename_suffix=_SUFFIX)
    run = _Run(trace, file)
    try:
        for event in trace:
            if event is not None:
                run.take(event)
                continue
            file.flush()
            yield
        run.finish()
    finally:
        file.close()


class _Step:
    def __init__(self):
        self.t_ns = 0
        self.losses, self.loss_scale = [], None
        self.norms = {kind: {} for kind in _NORMS}  # of each tensor, by its module and name
        self.ratios = []
        self.others = None  # [NaN, infinite], of all values


class _Run:
    def __init__(self, trace, file):
        self._trace, self._file = trace, file
        self._open = {}  # results of a GPU may arrive after the first values of the next step
        self._last_step = 0
        self._parameters = {}  # the value before: (step, event)
        self._depths = {}
        self._cost_t_ns = None

    def take(self, event):
        if self._cost_t_ns is None:
            self._cost_t_ns = event["t_ns"]
        if event["step"] is not None:
            self._last_step = max(self._last_step, event["step"])
        if event["record"] == "stats" and event["capture"] != "hash" and event["step"] is not None:
            self._stats(event, self._open.setdefault(event["step"], _Step()))
            for number in [number for number in self._open if number + 1 < self._last_step]:
                self._write_step(number)
        elif event["record"] == "finding":
            self._finding(event)
        elif event["record"] == "cost":
            self._cost(event)

    def finish(self):
        for number in sorted(self._open):
            self._write_step(number)

    def _stats(self, event, step):
        step.t_ns = max(step.t_ns, event["t_ns"])
        infinite = event["pos_inf"] + event["neg_inf"]
        nan, inf = step.others or (0, 0)
        step.others = nan + event["nan"], inf + infinite
        kind, _, name = event["slot"].partition(":")
        if kind == "loss":
            step.losses.append(_with_others(event["mean"], event))
        elif kind == "loss_scale":
            step.loss_scale = event["mean"]
        elif kind in _NORMS:
            norms, key = step.norms[kind], (event["scope"], name)
            if kind == "param":
                self._update(key, event, step)
            # A gradient that is clipped again: the first is that of the backward pass.
            if kind != "grad_unclipped" or key not in norms:
                norms[key] = math.nan if event["nan"] else math.inf if infinite else event["l2"]

    def _update(self, key, event, step):
        before_step, before = self._parameters.get(key, (None, None))
        self._parameters[key] = event["step"], event
        if event["phase"] == "optimizer" and before is not None and before_step >= event["step"] - 1:
            update = _distance(before, event)
            if update is not None and before["l2"]:
                step.ratios.append(update / before["l2"])

    def _write_step(self, number):
        step = self._open.pop(number)
        scalars = {}
        if step.losses:
            scalars["loss"] = sum(step.losses) / len(step.losses)
        if step.loss_scale is not None:
            scalars["loss_scale"] = step.loss_scale
        if step.norms["grad_unclipped"]:
            step.norms["grad_unclipped"] = {**step.norms["grad"], **step.norms["grad_unclipped"]}
        for kind, norms in step.norms.items():
            if norms:
                scalars["norm/" + _NORMS[kind]] = _norm(norms.values())
            if kind != "grad_unclipped":
                scalars.update(("%s/%s" % (_NORMS[kind], module), norm) for module, norm in self._of_modules(kind, norms))
        if step.ratios:
            scalars["update_ratio/largest"] = max(step.ratios)
        if step.others:
            scalars["nan"], scalars["inf"] = step.others
        self._add(number, step.t_ns, Summary(value=[Summary.Value(tag=tag, simple_value=value)
                                                    for tag, value in scalars.items()]))

    def _of_modules(self, kind, norms):
        """(module, norm) of at most _MODULES modules, as deep as the first step's allow."""
        if not norms:
            return []
        paths = [scope.split(".") for scope, _ in norms]
        if kind not in self._depths:
            depth = max(map(len, paths))
            while depth > 1 and len({tuple(path[:depth]) for path in paths}) > _MODULES:
                depth -= 1
            self._depths[kind] = depth
        modules = {}
        for path, norm in zip(paths, norms.values()):
            modules.setdefault(".".join(path[:self._depths[kind]]) or "root", []).append(norm)
        return [(module, _norm(modules[module])) for module in sorted(modules)[:_MODULES]]

    def _finding(self, event):
        place = " ".join(str(event[key]) for key in ("scope", "op", "kernel", "slot") if event[key])
        text = "%s %s: %s: %s" % (event["level"], event["kind"], place, event["message"])
        self._add(event["step"] or 0, event["t_ns"], text_pb("findings", text))

    def _cost(self, event):
        rest = event["t_ns"] - self._cost_t_ns - event["host_ns"]
        self._cost_t_ns = event["t_ns"]
        if rest > 0:
            self._add(self._last_step, event["t_ns"], Summary(value=[
                Summary.Value(tag="overhead", simple_value=event["host_ns"] / rest)]))

    def _add(self, step, t_ns, summary):
        meta = self._trace.meta
        wall_time = (meta.get("start_realtime_ns", 0) + t_ns - meta.get("start_monotonic_ns", 0)) * 1e-9
        self._file.add_event(Event(wall_time=wall_time, step=step, summary=summary))


def _norm(parts):
    return math.sqrt(sum(part * part for part in parts))


def _with_others(finite, event):
    """A statistic of the finite elements, with the others included."""
    if event["nan"] or (event["pos_inf"] and event["neg_inf"]):
        return math.nan
    return math.inf if event["pos_inf"] else -math.inf if event["neg_inf"] else finite


def _distance(a, b):
    """|a - b|, from the sketches or, of a tensor of few elements, from these; None where it is not known."""
    parts = [event["sketch"] or (event["samples"] if len(event["samples"]) == event["count"] else None) for event in (a, b)]
    if None in parts or len(parts[0]) != len(parts[1]) or a["nan"] or b["nan"]:
        return None
    distance = _norm(x - y for x, y in zip(*parts))
    return distance if math.isfinite(distance) else None
