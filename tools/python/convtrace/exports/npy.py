"""Exports values of a trace as .npy files with an index.

`index.jsonl` has one line with an object for each event of capture `snapshot`: its identity, the `file` that holds its value
(events of equal values share one) or null and `why`, and the `dtype` of the tensor. numpy has no bf16 and no 8-bit floats:
those files hold the raw bits as unsigned integers. A byte of f4e2m1fn holds two values, the first in its lower half.
"""
import json
import os
import re

from ..trace import Problem
from ..values import NotThere, Values

_DESCRIPTIONS = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "i8": "|i1", "i16": "<i2", "i32": "<i4", "i64": "<i8",
                 "u8": "|u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "bool": "|b1", "c64": "<c8", "c128": "<c16",
                 "bf16": "<u2", "f8e4m3fn": "|u1", "f8e5m2": "|u1", "f4e2m1fn": "|u1", "f8e8m0fnu": "|u1",
                 "unknown": "|u1"}
_KEYS = ("seq", "step", "rank", "phase", "scope", "call", "slot", "op", "kernel", "device", "dtype", "shape",
         "extent", "bytes", "hash")


def is_export(folder):
    """@return whether `folder` is an earlier export, without other files."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        return False
    return all(name == "index.jsonl" or re.fullmatch(r".*-\d+\.npy", name) for name in os.listdir(folder))


def export(trace, name, folder):
    """Writes `folder`/`name`-SEQ.npy for each value, and adds to `folder`/index.jsonl. Names in a trace do not
    become names of files. Missing values are added to trace.problems."""
    values = Values(trace.file)
    written = {}
    with open(os.path.join(folder, "index.jsonl"), "a", encoding="utf-8") as index:
        for event in trace:
            if event["record"] != "stats" or event["capture"] != "snapshot":
                continue
            line = {key: event[key] for key in _KEYS}
            try:
                line["file"] = _file_of(event, values, written, folder, name)
            except NotThere as why:
                line.update(file=None, why=str(why))
                trace.problems.append(Problem(0, "the value of event %d is not there: %s" % (event["seq"], why)))
            index.write(json.dumps(line) + "\n")
    trace.problems += [Problem(*one) for one in values.problems]


def _file_of(event, values, written, folder, name):
    """@return the name of the file with the event's value, which is written if no earlier event had the same value."""
    description = _DESCRIPTIONS[event["dtype"]]
    shape = event["shape"]
    if shape is None:
        shape = [event["bytes"] // int(description[2:])]
    key = event["hash"], event["bytes"], description, tuple(shape)
    if key not in written:
        file = "%s-%d.npy" % (name, event["seq"])
        _write(os.path.join(folder, file), description, shape,
               values.read(int(event["hash"], 16), event["bytes"]))
        written[key] = file
    return written[key]


def _write(path, description, shape, parts):
    """Writes a file in the format of numpy.save, version 1.0, a part at a time."""
    words = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (
        description, "".join("%d, " % extent for extent in shape))
    words += " " * (-(len(words) + 11) % 64) + "\n"
    try:
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words.encode("ascii"))
            for part in parts:
                file.write(part)
    except NotThere:
        os.unlink(path)
        raise
