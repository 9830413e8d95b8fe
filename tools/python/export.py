"""The program of `convtrace export`: python export.py --format FORMAT -o PATH TRACE...

FORMAT is parquet, npy, ort, statistic-csv, perfetto or tensorboard.
TRACE is a trace or a folder of traces (ranks). Exit codes: 0 clean, 1 failure, 3 a trace was unclosed
or damaged and what could be read was exported. With --follow, 0 also for Ctrl-C.
"""
import argparse
import importlib
import os
import shutil
import signal
import sys
import time

# Numbers of messages, as in tools/common/complaints.h.
NO_PYTHON, UNREADABLE, UNCLOSED, DAMAGED, EXISTS, NOT_WRITTEN, NOTHING_RECORDED = 2006, 2101, 2102, 2103, 2104, 2106, 2301
_PAUSE_S = 0.1  # while traces are written


def main():
    parser = argparse.ArgumentParser(prog="convtrace export")
    parser.add_argument("--format", required=True, choices=[
        "parquet", "npy", "ort", "statistic-csv", "perfetto", "tensorboard"])
    parser.add_argument("-o", "--output", required=True, metavar="DIR")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--by", choices=["rank", "steps"], default="rank")
    parser.add_argument("--start-step", type=int, default=0, metavar="N")
    parser.add_argument("--end-step", type=int, default=sys.maxsize, metavar="N")
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    arguments = parser.parse_args()
    if arguments.follow and arguments.format != "tensorboard":
        parser.error("--follow is for --format tensorboard")
    if arguments.by == "steps" and arguments.format != "parquet":
        parser.error("--by steps is for --format parquet")
    try:
        from convtrace import live, records, trace
        module = arguments.format.replace("-", "_") + ("_steps" if arguments.by == "steps" else "")
        written = importlib.import_module("convtrace.exports." + module)
    except ModuleNotFoundError as error:
        return _complain(NO_PYTHON, "--format %s needs the Python package %s: pip install %s"
                         % (arguments.format, error.name, error.name))
    paths = list(dict.fromkeys(path for name in arguments.traces for path in _traces(name, records.MAGIC)))
    if not paths:
        return _complain(UNREADABLE, "%s holds no trace" % " ".join(arguments.traces))
    # Written beside its place and moved there at the end, so that a partial export is never found.
    output = arguments.output.rstrip("/") or "/"
    unfinished = "%s.%d.unfinished" % (output, os.getpid())
    incomplete, following = False, []

    def refusal():
        if not os.path.lexists(output):
            return None
        if not arguments.overwrite:
            return "%s exists; --overwrite replaces it" % output
        if not written.is_export(output):
            return "%s is more than an earlier export; it is not replaced" % output
        held = [path for path in paths if _is_inside(path, output)]
        return "%s holds %s, which is to be exported; it is not replaced" % (output, held[0]) if held else None

    why = refusal()
    if why:
        return _complain(EXISTS, why)
    is_file = getattr(written, "IS_FILE", False)
    separate = getattr(written, "SEPARATE", False) and len(paths) > 1
    names = [_name_of(path, number, len(paths)) for number, path in enumerate(paths)]
    try:
        if not is_file:
            os.makedirs(unfinished)
    except OSError as error:
        return _complain(NOT_WRITTEN, str(error))
    try:
        for path, name in zip(paths, names):
            opened = live.LiveTrace(path) if arguments.follow else trace.Trace(path)
            opened.first_step, opened.end_step = arguments.start_step, arguments.end_step
            target = os.path.join(unfinished, name) if separate else unfinished
            if separate:
                os.mkdir(target)
            if arguments.follow:  # when the folder is in its place
                following.append((opened, written.follow(opened, os.path.join(output, name) if separate else output)))
            else:
                written.export(opened, name, target)
                incomplete |= _is_incomplete(opened)
        if separate and hasattr(written, "finish"):
            written.finish(unfinished, names)
        if hasattr(written, "join"):
            written.join(unfinished)
        if arguments.format == "npy" and os.path.getsize(os.path.join(unfinished, "index.jsonl")) == 0:
            return _complain(NOTHING_RECORDED, "the traces hold no values of tensors: record with --mode snapshot, or with a "
                             "rule that says capture = \"snapshot\"")
        why = refusal()  # what came while the traces were read
        if why:
            return _complain(EXISTS, why)
        if os.path.lexists(output) and not is_file:
            shutil.rmtree(output)
        os.replace(unfinished, output)
        incomplete |= _follow(following)
        _say_written(output)
    except records.NotATrace as error:
        return _complain(UNREADABLE, str(error))
    except OSError as error:
        return _complain(UNREADABLE if error.filename in paths else NOT_WRITTEN, str(error))
    finally:
        if is_file and os.path.exists(unfinished):
            os.unlink(unfinished)
        shutil.rmtree(unfinished, ignore_errors=True)
    return 3 if incomplete else 0


def _say_written(output):
    """Prints one line about the export to standard output."""
    files = [output] if os.path.isfile(output) else [
        os.path.join(folder, name) for folder, _, names in os.walk(output) for name in names]
    size = sum(map(os.path.getsize, files))
    print("%s: %d file%s, %s bytes" % (output, len(files), "" if len(files) == 1 else "s", format(size, ",")))


def _follow(exports):
    """Continues exports until each trace is closed or its writer is gone, or until SIGINT or SIGTERM.
    @return whether a trace that ended is incomplete"""
    incomplete = False
    try:
        for number in (signal.SIGINT, signal.SIGTERM) if exports else ():
            signal.signal(number, signal.default_int_handler)  # also where the shell has it ignored
        while exports:
            paused = [one for one in exports if next(one[1], "ended") is None]
            for opened in [one[0] for one in exports if one not in paused]:
                incomplete |= _is_incomplete(opened)
            exports = paused
            time.sleep(_PAUSE_S if exports else 0)
    except KeyboardInterrupt:
        for _, export in exports:
            export.close()
    return incomplete


def _is_incomplete(opened):
    """@return whether a trace is incomplete, after a message if it is."""
    if opened.state == "complete":
        return False
    _complain(DAMAGED if opened.state == "damaged" else UNCLOSED,
              "%s is %s: %s" % (opened.file.path, opened.state, _first_of(opened.problems)))
    return True


def _name_of(path, number, count):
    name = os.path.splitext(os.path.basename(path))[0]
    return name if count == 1 else "%s-%d" % (name, number)


def _traces(name, magic):
    """@return the path of a file, or the sorted paths of the traces in a folder, also of those not named *.ctrace."""
    if not os.path.isdir(name):
        return [name]
    paths = sorted(os.path.join(name, entry) for entry in os.listdir(name))
    return [path for path in paths if os.path.isfile(path) and (path.endswith(".ctrace") or _begins(path, magic))]


def _begins(path, magic):
    try:
        with open(path, "rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


def _is_inside(path, folder):
    folder = os.path.realpath(folder)
    return os.path.commonpath([folder, os.path.realpath(path)]) == folder


def _first_of(problems):
    if not problems:
        return "what was written of it is exported"
    more = "" if len(problems) == 1 else ", and %d more" % (len(problems) - 1)
    return "at byte %d %s%s" % (*problems[0], more)


def _complain(number, text):
    print("convtrace: CT-%d %s" % (number, text), file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
