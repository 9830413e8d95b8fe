"""The two jobs: tables of all traces on an engine, then the program on the traces themselves."""
import contextlib
import itertools
import json

import pyarrow
import pyarrow.dataset

from . import places, tasks

_TRACES = pyarrow.schema([("run", pyarrow.string()), ("path", pyarrow.string()), ("rank", pyarrow.int64()), ("world_size", pyarrow.int64()),
                          ("state", pyarrow.string()), ("findings", pyarrow.int64()), ("problem", pyarrow.string())])
_STEPS = pyarrow.schema([("run", pyarrow.string()), ("path", pyarrow.string()), ("rank", pyarrow.int64()), ("step", pyarrow.int64()),
                         ("launch_count", pyarrow.int64()), ("value_count", pyarrow.int64()), ("key_sum", pyarrow.string()),
                         ("value_sum", pyarrow.string())])

# Ranks with a step that is not the same in both runs; a step without a number never is.
_DIFFERENCES = """
SELECT coalesce(b.rank, c.rank) AS rank, min(coalesce(b.step, c.step)) AS first_step, count(*) AS step_count
FROM (SELECT * FROM steps WHERE run = 'base') b FULL OUTER JOIN (SELECT * FROM steps WHERE run = 'cand') c
    ON b.rank = c.rank AND b.step = c.step
WHERE b.rank IS NULL OR c.rank IS NULL OR b.launch_count <> c.launch_count OR b.value_count <> c.value_count
    OR b.key_sum <> c.key_sum OR b.value_sum <> c.value_sum
GROUP BY coalesce(b.rank, c.rank)"""


def origin(engine, paths, folder, arguments, wants_tables):
    """Runs the job and the program, which judges all traces: a collective needs all its members, a fault the steps around it.

    folder      of places.output(): gets the tables `traces` and `steps`, if they are wanted
    arguments   options of the program
    return      its exit code; all that it writes goes to stdout and stderr
    """
    if wants_tables:
        _look(engine, [("origin", paths)], folder)
    return _judge(paths, "convtrace", "origin", *arguments)


def diff(engine, base, cand, folder, arguments):
    """The same; `folder` gets the table `differences`, too. The program reads every value of the ranks in that table, and of the
    others those of the steps that it finds unequal itself."""
    looked = _look(engine, [("base", [base]), ("cand", [cand])], folder)
    ranks = {row["rank"] for row in looked}
    if len(ranks) > 1 and not any(row["problem"] for row in looked):
        engine.write(_DIFFERENCES, {"steps": places.join(folder, "steps")}, places.join(folder, "differences"))
        differing = set(_column(places.join(folder, "differences"), "rank"))
        arguments = [*arguments, "--ranks=" + _ranges(differing or {min(ranks)})] if differing != ranks else arguments
    return _judge([base, cand], "convtrace-diff", *arguments)


def _look(engine, runs, folder):
    """Looks at all traces. @return rows of the table `traces`"""
    given = [(run, path) for run, paths in runs for one in paths for path in places.traces(one)]
    answers = engine.each(_look_at, [(number, run, path, folder) for number, (run, path) in enumerate(given)])
    rows = [answer if not isinstance(answer, Exception) else {"run": run, "path": path, "problem": tasks.report(path, answer)}
            for (run, path), answer in zip(given, answers)]
    tasks.write_table(pyarrow.Table.from_pylist(rows, _TRACES), places.join(folder, "traces"), "traces")
    return [{**dict.fromkeys(_TRACES.names), **row} for row in rows]


def _look_at(task):
    number, run, path, folder = task
    with places.local(path) as file:
        info = json.loads(tasks.run_program("convtrace", "info", "--json", file))
    trace = {"run": run, "path": path, "rank": info["meta"]["rank"], "world_size": info["meta"]["world_size"], "state": info["state"],
             "findings": sum(info["findings"].values())}
    steps = [{"run": run, "path": path, "rank": trace["rank"], "step": step["step"], "launch_count": step["launches"],
              "value_count": step["values"], "key_sum": step["keys"], "value_sum": step["sum"]} for step in info["step_sums"]]
    tasks.write_table(pyarrow.Table.from_pylist(steps, _STEPS), places.join(folder, "steps"), "%06d" % number)
    return trace


def _column(folder, name):
    system, inside = places.opened(folder)
    return pyarrow.dataset.dataset(inside, filesystem=system, format="parquet").to_table(columns=[name]).column(0).to_pylist()


def _ranges(ranks):
    """@return ranks as --ranks takes them: 0-3,7"""
    runs = [list(run) for _, run in itertools.groupby(enumerate(sorted(ranks)), lambda pair: pair[1] - pair[0])]
    return ",".join("%d" % run[0][1] if len(run) == 1 else "%d-%d" % (run[0][1], run[-1][1]) for run in runs)


def _judge(paths, *command):
    with places.staged(paths) if any(map(places.is_url, paths)) else contextlib.nullcontext((None, paths)) as (folder, given):
        return tasks.judge(folder, *command, "--", *given)
