"""python -m convtrace.jobs origin|diff --engine duckdb|spark [--json F] DIR..."""
import argparse
import os
import shutil
import signal
import sys
import tempfile


_RULES = ("tol", "ignore", "exact", "layouts", "step-offset")


def main(arguments=None):
    """Runs a job. @return the exit code of `convtrace origin` or `convtrace-diff`; 2 for a usage error or a missing engine."""
    parser = argparse.ArgumentParser(prog="python -m convtrace.jobs", description=(
        "convtrace origin and convtrace-diff for folders and object stores of many traces, with the same JSON and exit codes"))
    commands = parser.add_subparsers(dest="command", required=True, metavar="origin|diff")
    origin = commands.add_parser("origin", help="where a job went wrong first")
    origin.add_argument("paths", nargs="+", metavar="TRACE", help="traces, or folders of them: paths, or URLs as s3://bucket/run")
    diff = commands.add_parser("diff", help="the first divergence between two jobs")
    diff.add_argument("base", metavar="BASE", help="trace, or folder of traces, of the run to trust: a path or a URL")
    diff.add_argument("cand", metavar="CAND", help="the same of the run in doubt")
    for name in _RULES:
        diff.add_argument("--" + name, action="append", default=[], metavar="X", help="as convtrace-diff has it")
    diff.add_argument("--map", action="append", default=[], metavar="F", help="as convtrace-diff has it")
    diff.add_argument("--allow-incomplete", action="store_true", help="as convtrace-diff has it")
    for command in (origin, diff):
        command.add_argument("--engine", required=True, choices=["duckdb", "spark"])
        command.add_argument("--json", metavar="F", help="everything that was found; -: stdout")
        command.add_argument("-o", "--output", metavar="DIR", help="keep the tables there; for a cluster of Spark a place that all machines see")
        command.add_argument("--master", metavar="URL", help="of Spark; default: what spark-submit says, else local[*]")
        command.add_argument("--workers", type=int, metavar="N", help="tasks at once, with DuckDB; default: processors")
    options = parser.parse_args(arguments)
    if options.workers is not None and options.workers < 1:
        parser.error("--workers takes a number of 1 or more")
    signal.signal(signal.SIGTERM, _end)
    try:
        return _run(options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001 - whatever it is, 1 would mean that runs diverge
        print("convtrace: CT-2001 --engine %s: %s" % (options.engine, " ".join((str(error) or type(error).__name__).split())[:500]),
              file=sys.stderr)
        return 2


def _end(number, _):
    """Ends the process at SIGTERM by an exception, so that temporary files are removed as after Ctrl-C."""
    raise SystemExit(128 + number)


def _run(options):
    try:
        from . import engines, job, places
        engine = engines.ENGINES[options.engine](master=options.master, workers=options.workers)
    except ModuleNotFoundError as error:
        print("convtrace: CT-2006 --engine %s needs the Python package %s: pip install %s" % (
            options.engine, error.name, error.name), file=sys.stderr)
        return 2
    if not engine.is_local and not options.output:
        engine.close()
        print("convtrace: CT-2001 a cluster needs --output: a place that all its machines see", file=sys.stderr)
        return 2
    arguments = ["--json=" + (options.json if options.json == "-" else os.path.abspath(options.json))] if options.json else []
    folder = options.output or tempfile.mkdtemp(prefix="convtrace-jobs-")
    try:
        with places.output(folder):
            if options.command == "origin":
                return job.origin(engine, options.paths, folder, arguments, bool(options.output))
            arguments += ["--%s=%s" % (name, word) for name in _RULES for word in getattr(options, name.replace("-", "_"))]
            arguments += ["--map=" + os.path.abspath(path) for path in options.map]
            arguments += ["--allow-incomplete"] * options.allow_incomplete
            return job.diff(engine, options.base, options.cand, folder, arguments)
    except places.Taken as error:
        print("convtrace: CT-2104 %s" % error, file=sys.stderr)
        return 2
    finally:
        engine.close()
        if not options.output:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
