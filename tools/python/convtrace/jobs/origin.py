"""`convtrace origin` on an engine: a digest of each trace, equal rows of several ranks merged, one verdict."""
import io
import os

import pyarrow
import pyarrow.dataset

from . import blocks, places, tasks

_MOST_EVENTS = 6_000_000  # in a window, as the program has it

# Merges rows that differ only in their members. `at_step` is among the columns, so a row is in one window.
_TOGETHER = """
SELECT CAST(floor((CAST(at_step AS BIGINT) + CASE WHEN at_step < 0 THEN 4294967296 ELSE 0 END) / {steps}) AS BIGINT)
           AS window_number, {row}, array_agg({members}) AS held_by
FROM {table} GROUP BY {row}"""

# The nodes of the graph, for queries: the callers of a collective, whether all called one operation, and the number of results.
_COLLECTIVES = """
SELECT c.in_group, c.number, min(c.step) AS step, min(c.op) AS op, min(c.op) = max(c.op) AS one_op, min(c.scope) AS scope,
       max(c.group_size) AS group_size, count(*) AS callers, count(DISTINCT r.hash) AS results, max(coalesce(r.bad, 0)) AS bad
FROM calls c LEFT JOIN (
    SELECT trace, place, min(hash) AS hash, max(is_bad) AS bad FROM tensors WHERE is_sent = 0 GROUP BY trace, place
) r ON c.trace = r.trace AND c.place = r.place
WHERE c.op NOT IN ('send', 'recv') GROUP BY c.in_group, c.number"""


def run(engine, paths, folder, arguments=(), window_steps=None):
    """Runs the job and the program, which writes to stdout, stderr and the files in its `arguments`.

    folder         of places.output(): gets the tables `digests`, `traces`, `reduced` and `collectives`
    window_steps   steps that the program has in memory at once; None: as many as hold 6 million events
    return         the exit code of the program
    """
    given = [(number, path) for number, one in enumerate(paths) for path in places.traces(one)]
    answers = engine.each(_digest, [(number, path, folder) for number, (_, path) in enumerate(given)])
    head = next((answer[0] for answer in answers if not isinstance(answer, Exception)), None)
    if head is None:  # of a trace that is none
        head = blocks.read(io.BytesIO(tasks.run_program("convtrace", "origin", "--digest", "-", os.devnull)))[0]
    tables = blocks.read_head(io.BytesIO(head))[1]
    rows = [_trace_row(tables[0], number, path, answer) for (number, path), answer in zip(given, answers)]
    traces = pyarrow.Table.from_pylist(rows, blocks.schema(tables[0]))
    tasks.write_table(traces, places.join(folder, "traces"), "traces")
    reduced, steps = {}, window_steps or _window_steps(rows)
    if any(not row["problem"] for row in rows):
        reduced = _reduce(engine, folder, tables[1:], steps)
    return tasks.judge("convtrace", "origin", "--digests", "-", *arguments, "--", *paths,
                       write=lambda file: _feed(file, head, tables, traces, reduced, steps))


def _digest(task):
    """Makes the digest of a trace and writes its rows. @return (the head of the digest, the row of the trace)"""
    number, path, folder = task
    with places.local(path) as file:
        head, tables, found = blocks.read(io.BytesIO(tasks.run_program("convtrace", "origin", "--digest", "-", "--", file)))
        trace = found[tables[0].name].to_pylist()[0]
        trace["problem"] = trace["problem"].replace(file, path)
    for table in tables[1:]:
        rows = found[table.name]
        numbers = pyarrow.array([number], pyarrow.int32()).take(pyarrow.array([0] * len(rows), pyarrow.int32()))
        rows = rows.set_column(rows.schema.get_field_index("trace"), "trace", numbers)
        tasks.write_table(rows, places.join(folder, "digests", table.name), "%06d" % number)
    return head, trace


def _trace_row(table, given, path, answer):
    if isinstance(answer, Exception):
        row = {name: "" if kind == "text" else 0 for name, kind in table.row}
        row["problem"] = tasks.report(path, answer)
    else:
        row = answer[1]
    row.update(given=given, path=path)
    return row


def _window_steps(rows):
    spans = [(row["first_step"], row["last_step"]) for row in rows if row["has_steps"]]
    events = sum(row["events"] for row in rows)
    steps = max(last for _, last in spans) - min(first for first, _ in spans) + 1 if spans else 1
    return max(1, steps * _MOST_EVENTS // max(events, 1))


def _reduce(engine, folder, tables, steps):
    """Merges the rows of the digests. @return {name of a table: the folder of its rows, partitioned by window}"""
    digests = {table.name: places.join(folder, "digests", table.name) for table in tables}
    reduced = {table.name: places.join(folder, "reduced", table.name) for table in tables}
    for table in tables:
        query = _TOGETHER.format(steps=steps, row=", ".join(name for name, _ in table.row), table=table.name,
                                 members=engine.members([name for name, _ in table.member]))
        engine.write(query, digests, reduced[table.name], "window_number")
    engine.write(_COLLECTIVES, digests, places.join(folder, "collectives"))
    return reduced


def _feed(file, head, tables, traces, reduced, steps):
    file.write(head)
    for batch in traces.to_batches():
        blocks.write_block(file, tables, tables[0].name, batch)
    rows = {name: _partitioned(folder) for name, folder in reduced.items()}
    windows = sorted({int(number) for one in rows.values() for number in one})
    for number in windows:
        for name, fragments in rows.items():
            for fragment in fragments.get(number, ()):
                for batch in fragment.to_batches():
                    blocks.write_block(file, tables, name, batch)
        blocks.write_window(file, None if number == windows[-1] else (number + 1) * steps - 1)
    if not windows:
        blocks.write_window(file, None)


def _partitioned(folder):
    """@return {window: the fragments of a folder's dataset}."""
    system, inside = places.opened(folder)
    found = {}
    for fragment in pyarrow.dataset.dataset(inside, filesystem=system, format="parquet").get_fragments():
        number = int(fragment.path.rsplit("window_number=", 1)[1].split("/")[0])
        found.setdefault(number, []).append(fragment)
    return found
