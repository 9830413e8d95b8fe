"""Exports of traces to formats of other programs, one module each, which tools/python/export.py calls. A module has

    is_export(path)            returns whether `path` is an earlier export, which may be replaced
    export(trace, name, path)  adds one trace under the name `name`
    IS_FILE = True             if `path` is a file, not a folder
    SEPARATE = True            if each of several traces gets a folder; finish(path, names), if it exists, is called at the end
    join(path)                 if the traces are merged after all were added
    follow(trace, path)        if a trace can be exported while it is written: a generator that yields when a LiveTrace gives None
"""
