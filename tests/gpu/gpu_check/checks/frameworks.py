"""Real programs: the same bits with and without convtrace, exact counts of launches, nothing found."""
from ..bench import expect
from ..check import check
from .ways import launch_count

MODELS = {"gpt": 2, "amp": 2, "attention": 2, "cnn": 2, "lstm": 2, "checkpointed": 2, "resnet": 2, "transformers": 2,
          "llama": 2, "accumulated": 2, "gan": 2, "inference": 2, "graph": 5, "graph_trees": 5,
          "compiled": 8, "extension": 8, "distributed": 8, "triton_op": 8}  # model: part
FRAMEWORKS = ("cupy", "jax")


def check_program(bench, command):
    """Plain against traced; the launches against what the probe counts in a third run."""
    plain = bench.result(bench.run(command, timeout=240))
    done, trace = bench.traced(command, timeout=240)
    traced = bench.result(done)
    bench.expect_same(plain, traced, lambda: bench.result(bench.run(command, timeout=240)))
    info = trace.check_clean()
    records = trace.records("launch")
    graphs = sum(r["kernel"] == "cuGraphLaunch" for r in records)
    replayed = sum(r["why"] == "run by a graph launch" for r in records)
    launches = len(records) - graphs - replayed  # calls of the program, not what a graph runs
    numbers = bench.note({"launches": launches, "graph_launches": graphs, "kernels_in_graphs": replayed,
               "values": info["records"].get("stats", 0), "bytes": info["bytes"]})
    if bench.device == "cpu":
        return numbers
    done, probe = bench.probed(command, "driver", timeout=240)
    bench.result(done)
    expect(probe is not None and probe["subscribe_result"] == 0, "the probe could not subscribe")
    counted = launch_count(probe["driver"])
    bench.note({"launches_counted_by_cupti": counted})
    expect(launches == counted, "%d launches in the trace, CUPTI alone counts %d" % (launches, counted))
    return numbers


def model_check(model):
    return lambda bench: check_program(bench, bench.workload("models", "--model", model))


def framework_check(name):
    return lambda bench: check_program(bench, bench.other_framework(name))


for _name, _part in MODELS.items():
    check(_name, part=_part)(model_check(_name))


@check("Triton's arguments", part=8)
def triton_arguments(bench):
    """Names and types of a Triton kernel's arguments are facts of the trace."""
    done, trace = bench.traced(bench.workload("models", "--model", "triton_op"))
    bench.result(done)
    facts = {key: value for key, value in trace.info["meta"]["facts"].items() if key.startswith("triton.")}
    expect(any("scaled_relu_kernel" in key and "x_ptr" in str(value) for key, value in facts.items()), "facts are %s" % facts)
    return {key: str(value) for key, value in facts.items()}


@check("operations", part=8)
def operations(bench):
    """Every operation of a module (CONVTRACE_OPS): the same bits, and what is compiled stays compiled."""
    numbers = {}
    for model in ("gpt",) if bench.device == "cpu" else ("gpt", "compiled"):
        command = bench.workload("models", "--model", model)
        plain = bench.result(bench.run(command, timeout=240))
        done, trace = bench.traced(command, timeout=240, ops="*")
        bench.expect_same(plain, bench.result(done), lambda: bench.result(bench.run(command, timeout=240)))  # noqa: B023 - called in its turn
        trace.check_clean()
        numbers[model + "_values"] = sum(r["op"] is not None for r in trace.records("stats"))
        expect(numbers[model + "_values"] > 0, "%s: no operation was recorded" % model)
    return numbers


for _name in FRAMEWORKS:
    check(_name, part=8)(framework_check(_name))
