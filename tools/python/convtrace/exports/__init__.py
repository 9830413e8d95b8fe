"""Traces in formats of other programs, a module each: what tools/python/export.py runs. A module has

    is_export(path)            whether `path` is an earlier export, which may be replaced
    export(trace, name, path)  adds one trace, which is to be called `name`
    IS_FILE = True             where `path` is a file, not a folder
    SEPARATE = True            where several traces get a folder each; finish(path, names), if there is one, is called at the end
    join(path)                 where the traces are brought together when all were added
    follow(trace, path)        where a trace may be exported while it is written: a generator that pauses where a LiveTrace does
"""
