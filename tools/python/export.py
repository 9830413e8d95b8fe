"""python export.py --format parquet -o DIR TRACE...: what `convtrace export` runs.

TRACE is a trace or a folder of traces (ranks). Exit codes: 0 clean, 1 failure, 3 a trace was unclosed
or damaged and what could be read was exported.
"""
import argparse
import glob
import os
import shutil
import sys


def main():
    parser = argparse.ArgumentParser(prog="convtrace export")
    parser.add_argument("--format", required=True, choices=["parquet"])
    parser.add_argument("-o", "--output", required=True, metavar="DIR")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    arguments = parser.parse_args()
    try:
        from convtrace import parquet, records, trace
    except ModuleNotFoundError as error:
        return _complain("export needs the Python package %s: pip install pyarrow zstandard flatbuffers"
                         % error.name)
    paths = list(dict.fromkeys(path for name in arguments.traces for path in _traces(name)))
    if not paths:
        return _complain("%s holds no .ctrace file" % " ".join(arguments.traces))
    if os.path.exists(arguments.output) and not arguments.overwrite:
        return _complain("%s exists; --overwrite replaces it" % arguments.output)
    # Beside its place and moved there at the end: nobody finds half an export.
    unfinished = "%s.%d.unfinished" % (arguments.output.rstrip("/"), os.getpid())
    incomplete = False
    try:
        for number, path in enumerate(paths):
            opened = trace.Trace(path)
            name = os.path.splitext(os.path.basename(path))[0]
            parquet.export(opened, name if len(paths) == 1 else "%s-%d" % (name, number), unfinished)
            if opened.state != "complete":
                incomplete = True
                print("convtrace: %s is %s: %s" % (path, opened.state, _first_of(opened.problems)), file=sys.stderr)
        if os.path.exists(arguments.output):
            shutil.rmtree(arguments.output)
        os.rename(unfinished, arguments.output)
    except (records.NotATrace, OSError) as error:
        return _complain(str(error))
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return 3 if incomplete else 0


def _traces(name):
    return sorted(glob.glob(os.path.join(glob.escape(name), "*.ctrace"))) if os.path.isdir(name) else [name]


def _first_of(problems):
    if not problems:
        return "what was written of it is exported"
    more = "" if len(problems) == 1 else ", and %d more" % (len(problems) - 1)
    return "at byte %d %s%s" % (*problems[0], more)


def _complain(text):
    print("convtrace: " + text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
