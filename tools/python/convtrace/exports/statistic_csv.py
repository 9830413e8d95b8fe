"""Exports statistics as the statistic.csv of MindSpore's Dump: one row for each value, with that file's columns and names.

A module or op takes the place of a kernel, its call that of a task; the column MD5 has convtrace's hash.
"""
import csv
import os

IS_FILE = True

COLUMNS = ("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape",
           "Max Value", "Min Value", "Avg Value", "Count", "Negative Zero Count", "Positive Zero Count", "NaN Count",
           "Negative Inf Count", "Positive Inf Count", "Zero Count", "MD5", "L2Norm Value")
# Ours before theirs: one file holds all steps and ranks.
_OWN_COLUMNS = ("Rank", "Step")


def is_export(path):
    """@return whether `path` is a file with the header of an earlier export."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        return tuple(next(csv.reader([file.readline(4096)]), ())) == _OWN_COLUMNS + COLUMNS


def export(trace, name, path):
    """Adds the rows of a trace to the file `path`."""
    is_new = not os.path.exists(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        if is_new:
            rows.writerow(_OWN_COLUMNS + COLUMNS)
        for event in trace:
            if event["record"] == "stats" and "mean" in event:
                rows.writerow(_row(event))


def _row(event):
    kind, _, index = event["slot"].partition(":")
    is_input = kind in ("input", "grad_output")
    return (
        event["rank"], event["step"], _type_of(event), _name_of(event), event["call"], 0, event["t_ns"] // 1000,
        "input" if is_input else "output", index or kind, event["bytes"], event["dtype"],
        "" if event["shape"] is None else "(%s)" % ",".join(map(str, event["shape"])),
        event["max"], event["min"], event["mean"], event["count"], event["neg_zero"], event["pos_zero"], event["nan"],
        event["neg_inf"], event["pos_inf"], event["pos_zero"] + event["neg_zero"], event["hash"][2:], event["l2"])


def _type_of(event):
    if event["kernel"]:
        return "Kernel"
    if event["op"]:
        return event["op"]
    return {"param": "Parameter", "grad": "Gradient", "loss": "Loss"}.get(event["slot"].partition(":")[0], "Module")


def _name_of(event):
    """@return the name of a value as a path: phase, module, and kernel or op if it has one."""
    scope = event["scope"] or "root"
    return "/".join(part for part in (event["phase"], scope, event["kernel"] or event["op"]) if part)
