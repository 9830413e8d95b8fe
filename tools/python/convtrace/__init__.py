"""Reads .ctrace files in Python.

    import convtrace
    trace = convtrace.Trace("base.ctrace")
    for event in trace: ...                  # dicts, with the names of `convtrace show --json`
    trace.frame("stats")                     # a pandas.DataFrame
    convtrace.diff("base.ctrace", "cand.ctrace").verdict    # also check(), origin(): reports.py
    convtrace.concat_hash([(q, 4096), ...])  # hashes of parts, as integers, and their bytes: of the whole

Needs nothing but Python 3.8 and the tree that it is a part of; pandas is for frame(), pyarrow and tensorboard
are for the exports of those names. Written from format/FORMAT.md alone.

`%load_ext convtrace` in a notebook: see notebook.py. A plugin for pytest: see pytest_plugin.py.
"""
import importlib

__all__ = ["Failed", "NotATrace", "Problem", "Report", "Trace", "check", "concat_hash", "diff", "origin"]

_PLACES = {"Failed": "reports", "NotATrace": "records", "Problem": "trace", "Report": "reports", "Trace": "trace", "check": "reports",
           "concat_hash": "hashes", "diff": "reports", "origin": "reports"}


def __getattr__(name):
    # The reader is imported when it is used: pytest imports this package at each start.
    if name not in _PLACES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(importlib.import_module("." + _PLACES[name], __name__), name)


def load_ipython_extension(ipython):
    from . import notebook

    notebook.load(ipython)
