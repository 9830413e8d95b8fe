"""Reads .ctrace files in Python.

    import convtrace
    trace = convtrace.Trace("base.ctrace")
    for event in trace: ...                  # dicts, with the names of `convtrace show --json`
    trace.frame("stats")                     # a pandas.DataFrame
    convtrace.concat_hash([(q, 4096), ...])  # hashes of parts, as integers, and their bytes: of the whole

Needs nothing but Python 3.8 and the tree that it is a part of; pandas is for frame(), pyarrow for
`convtrace export --format parquet`. Written from format/FORMAT.md alone.
"""
from .hashes import concat_hash
from .records import NotATrace
from .trace import Problem, Trace

__all__ = ["NotATrace", "Problem", "Trace", "concat_hash"]
