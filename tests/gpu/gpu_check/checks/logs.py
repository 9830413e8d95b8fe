"""Logs of what CUPTI calls under programs of several kinds, to be replayed without a GPU (tests/gpu/cupti_log)."""
import json

from ..bench import Skip, expect
from ..check import LOGS, check

MOST_BYTES = 15 << 20  # of a log: a borrowed machine gives back files of 16 MiB
MODELS = {"step": "gpt", "triton": "triton_op", "graph": "graph", "nccl": "distributed"}


def record(bench, name, command, ended):
    """@param ended  takes the process that has ended, as Bench.program and Bench.result do."""
    if bench.device == "cpu":
        raise Skip("needs a GPU")
    path = bench.folder / "log"
    ended(bench.logged(command, path))
    expect(path.exists(), "the driver did not load the library of CUDA_INJECTION64_PATH")
    lines = path.read_text().splitlines(keepends=True)
    expect(lines and json.loads(lines[0]).get("log") == "cupti", "CUPTI could not be subscribed to")
    calls = [json.loads(line) for line in lines[1:]]
    ends = {site: {one["pair"] for one in calls if one.get("site") == site} for site in ("enter", "exit")}
    bench.note({"calls": len(ends["enter"]), "kinds": len({one["call"] for one in calls if "call" in one}),
                "bytes": path.stat().st_size, "without_exit": len(ends["enter"] - ends["exit"]),
                "without_entry": len(ends["exit"] - ends["enter"])})
    expect(any("Launch" in one.get("call", "") for one in calls), "no launch among %d calls" % len(calls))
    folder = bench.out / "cupti"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (name + ".log")).write_text("".join(shortened(lines)))


def shortened(lines):
    """The beginning of a log that is too long."""
    size = 0
    for line in lines:
        size += len(line)
        if size > MOST_BYTES:
            return
        yield line


@check("log: operands", part=LOGS)
def operands(bench):
    record(bench, "operands", bench.native(bench.tree.operands), bench.program)


@check("log: graph pool", part=LOGS)
def graph_pool(bench):
    def ended(done):
        expect(done.code == 0, "ended with %d: %s" % (done.code, done.err[-300:]))

    record(bench, "graph_pool", bench.native(bench.tree.alias, "graph-pool"), ended)


def model_check(name, model):
    return lambda bench: record(bench, name, bench.workload("models", "--model", model, "--steps", "2"), bench.result)


for _name, _model in MODELS.items():
    check("log: " + _name, part=LOGS)(model_check(_name, _model))
