"""python -m convtrace.jobs origin|diff --engine duckdb|spark [--json F] DIR..."""
import argparse
import shutil
import signal
import sys
import tempfile


_RULES = ("tol", "ignore", "exact", "layouts", "step-offset", "map")


def main(arguments=None):
    """Runs a job. @return the exit code of `convtrace origin` or `convtrace-diff`; 2 for a usage error or a missing engine."""
    parser = argparse.ArgumentParser(prog="python -m convtrace.jobs", description=(
        "convtrace origin and convtrace-diff for folders and object stores of many traces, with the same JSON and exit codes"))
    commands = parser.add_subparsers(dest="command", required=True, metavar="origin|diff")
    origin = commands.add_parser("origin", help="where a job went wrong first")
    origin.add_argument("paths", nargs="+", metavar="TRACE", help="traces, or folders of them: paths, or URLs as s3://bucket/run")
    origin.add_argument("--window-steps", type=int, metavar="N", help="steps that the verdict has in memory at once")
    diff = commands.add_parser("diff", help="the first divergence between two jobs")
    diff.add_argument("base", metavar="BASE", help="trace, or folder of traces, of the run to trust: a path or a URL")
    diff.add_argument("cand", metavar="CAND", help="the same of the run in doubt")
    for name in _RULES:
        diff.add_argument("--" + name, action="append", default=[], metavar="X", help="as convtrace-diff has it")
    diff.add_argument("--allow-incomplete", action="store_true", help="as convtrace-diff has it")
    for command in (origin, diff):
        command.add_argument("--engine", required=True, choices=["duckdb", "spark"])
        command.add_argument("--json", metavar="F", help="everything that was found; -: stdout")
        command.add_argument("-o", "--output", metavar="DIR", help="keep the tables there; for a cluster of Spark a place that all machines see")
        command.add_argument("--master", metavar="URL", help="of Spark; default: what spark-submit says, else local[*]")
        command.add_argument("--workers", type=int, metavar="N", help="tasks at once, with DuckDB; default: processors")
    options = parser.parse_args(arguments)
    for name in ("workers", "window_steps"):
        if getattr(options, name, None) is not None and getattr(options, name) < 1:
            parser.error("--%s takes a number of 1 or more" % name.replace("_", "-"))
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
        from . import diff as diff_job
        from . import engines, places
        from . import origin as origin_job
        engine = engines.ENGINES[options.engine](master=options.master, workers=options.workers)
    except ModuleNotFoundError as error:
        print("convtrace: CT-2006 --engine %s needs the Python package %s: pip install %s" % (
            options.engine, error.name, error.name), file=sys.stderr)
        return 2
    if not engine.is_local and not options.output:
        engine.close()
        print("convtrace: CT-2001 a cluster needs --output: a place that all its machines see", file=sys.stderr)
        return 2
    reports = ["--json", options.json] if options.json else []
    folder = options.output or tempfile.mkdtemp(prefix="convtrace-jobs-")
    try:
        with places.output(folder):
            if options.command == "origin":
                return origin_job.run(engine, options.paths, folder, reports, options.window_steps)
            rules = ["--%s=%s" % (name, word) for name in _RULES for word in getattr(options, name.replace("-", "_"))]
            rules += ["--allow-incomplete"] * options.allow_incomplete
            return diff_job.run(engine, options.base, options.cand, folder, reports, rules)
    except places.Taken as error:
        print("convtrace: CT-2104 %s" % error, file=sys.stderr)
        return 2
    finally:
        engine.close()
        if not options.output:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
