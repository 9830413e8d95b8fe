"""`convtrace-diff` of two jobs on an engine: one task for each rank's pair of traces, one verdict from all their results."""
import json
import struct
import sys
import tempfile

import pyarrow
import pyarrow.parquet

from . import places, tasks

# The result of a task: columns about its pair for queries, and `found` for the program that joins all results.
_SCHEMA = pyarrow.schema([("number", pyarrow.int32()), ("rank", pyarrow.int32()), ("base", pyarrow.string()), ("cand", pyarrow.string()),
                          ("verdict", pyarrow.string()), ("values", pyarrow.int64()), ("root_step", pyarrow.int64()),
                          ("root_scope", pyarrow.string()), ("root_slot", pyarrow.string()), ("report", pyarrow.string()),
                          ("found", pyarrow.binary())])


def run(engine, base, cand, folder, arguments=(), rules=()):
    """Runs the job and the program, which writes to stdout, stderr and the files in its `arguments`.

    folder   of places.output(): gets the table `parts`
    rules    options of convtrace-diff that say how values are compared
    return   the exit code of the program; 2 if a run has no trace that can be read
    """
    work = [(side, "folder" if places.is_folder(path) else "file", trace)
            for side, path in (("base", base), ("cand", cand)) for trace in places.traces(path)]
    described = [_described(task, answer) for task, answer in zip(work, engine.each(_describe, work))]
    head = struct.pack("<I", len(described)) + b"".join(map(_message, described))
    try:
        plan = json.loads(tasks.run_program("convtrace-diff", "--pairs", *rules, "--", base, cand, given=head))
    except tasks.Failed:
        plan = {"whole": False, "several": False, "pairs": []}  # the program says why
    if plan["whole"]:  # needs a step of all ranks at once
        if places.is_url(base) or places.is_url(cand):
            print("convtrace: runs that divide their work among ranks in two ways are compared on one machine: give folders of this "
                  "machine, or --layouts=ranks", file=sys.stderr)
            return 2
        return tasks.judge("convtrace-diff", *rules, *arguments, "--", base, cand, write=lambda file: None)
    pairs = plan["pairs"]
    compared = [(number, one["rank"], one["base"], one["cand"], folder, tuple(rules), plan["several"])
                for number, one in enumerate(pairs)]
    failures = {task[0]: tasks.report(task[2], answer) for task, answer in zip(compared, engine.each(_compare, compared))
                if isinstance(answer, Exception)}

    def write(file):
        file.write(head)
        for number in range(len(compared)):
            file.write(_message(b"" if number in failures else _found(folder, number)))

    return tasks.judge("convtrace-diff", "--parts", *rules, *arguments, "--", base, cand, write=write)


def _describe(task):
    side, kind, path = task
    with places.local(path) as file:
        return tasks.run_program("convtrace-diff", "--describe", side, kind, file, path)


def _described(task, answer):
    if not isinstance(answer, Exception):
        return answer
    side, kind, path = task
    return tasks.run_program("convtrace-diff", "--describe", side, kind, path, path, tasks.reason(answer))


def _compare(task):
    number, rank, base, cand, folder, rules, several = task
    several = ["--of-several"] if several else []
    with places.local(base) as one, places.local(cand) as other, tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        found = tasks.run_program("convtrace-diff", "--part", str(rank), "--json", report.name, *several, *rules, "--", one, other)
        text = report.read()
    alone = json.loads(text)
    root = alone["root"] or {}
    row = {"number": number, "rank": rank, "base": base, "cand": cand, "verdict": alone["verdict"], "values": alone["compared"]["values"],
           "root_step": root.get("step"), "root_scope": root.get("scope"), "root_slot": root.get("slot"), "report": text, "found": found}
    tasks.write_table(pyarrow.Table.from_pylist([row], _SCHEMA), places.join(folder, "parts"), _name(number))


def _found(folder, number):
    system, inside = places.opened(places.join(folder, "parts", _name(number) + ".parquet"))
    return pyarrow.parquet.read_table(inside, filesystem=system, columns=["found"]).column(0)[0].as_py()


def _name(number):
    return "%06d" % number


def _message(data):
    return struct.pack("<Q", len(data)) + data
