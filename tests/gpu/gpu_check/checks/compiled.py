"""Compiled code: what kernels of Inductor and Triton write, by name, and how they were tuned."""
from ..bench import expect
from ..check import check

PART = 11


def traced(bench, model, **settings):
    """The program with and without convtrace has the same bits. @return the trace and its facts."""
    command = bench.workload("models", "--model", model)
    plain = bench.result(bench.run(command, timeout=240))
    done, trace = bench.traced(command, timeout=240, **settings)
    bench.expect_same(plain, bench.result(done), lambda: bench.result(bench.run(command, timeout=240)))
    return trace, trace.check_clean()["meta"]["facts"]


def values_of_kernels(trace, name):
    """{(slot, dtype): records} of what kernels with such a name write."""
    found = {}
    for one in trace.records("stats"):
        if one["kernel"] is not None and name in one["kernel"]:
            found.setdefault((one["slot"], one["dtype"]), []).append(one)
    return found


def check_tuning(trace, name):
    """@return how many launches tried such a kernel out: they have no step, and there are others that have one."""
    launches = [one for one in trace.records("launch") if name in one["kernel"]]
    tried = [one for one in launches if one["phase"] == "tuning"]
    expect(tried, "none of %d launches of %s is told as a benchmark" % (len(launches), name))
    expect(len(tried) < len(launches), "each launch of %s is told as a benchmark" % name)
    expect(all(one["step"] is None for one in tried), "a benchmark of %s has a step" % name)
    return len(tried)


@check("compiled regions", part=PART)
def regions(bench):
    """CONVTRACE_COMPILED: the same bits, with values of operations that regions call, and of their kernels."""
    numbers = {}
    for wanted in "calls", "all":
        trace, facts = traced(bench, "compiled", compiled=wanted)
        ops = {one["op"] for one in trace.records("stats") if one["op"] is not None}
        fused = {one for one in ops if one.startswith("inductor::")}
        expect(any(one.startswith("aten::") for one in ops), "no called operation has a value: %s" % sorted(ops))
        expect(bool(fused) == (wanted == "all"), "values of kernels under %s: %s" % (wanted, sorted(fused)))
        expect(any(key.startswith("compiled.") for key in facts), "no fact says what a call was made of")
        numbers.update({wanted + "_ops": len(ops), wanted + "_kernels": len(fused)})
    if bench.device == "cuda":
        typed = values_of_kernels(trace, "triton_")
        expect(any(slot.startswith("arg:out_ptr") and dtype == "f32" for slot, dtype in typed),
               "what Inductor's Triton kernels write has other names: %s" % sorted(typed))
        expect(any(key.startswith("autotune.triton_") for key in facts), "no fact says how a kernel of Inductor is configured")
        numbers["typed_operands"] = len(typed)
    return numbers


@check("Triton's values", part=PART)
def triton_values(bench):
    """The output of a Triton kernel is recorded by its argument's name and type, with the bits of the next module's input."""
    numbers = {}
    for settings in {"compiled": "all"}, {"all_kernels": 1}:
        trace, _ = traced(bench, "triton_op", **settings)
        found = values_of_kernels(trace, "scaled_relu_kernel")
        expect(set(found) == {("arg:out_ptr", "f32")}, "values of the kernel are %s" % sorted(found))
        written = {one["step"]: one["hash"] for one in found["arg:out_ptr", "f32"]}
        taken = {one["step"]: one["hash"] for one in trace.records("stats") if (one["scope"], one["slot"]) == ("last", "input:0")}
        expect(written and written == {step: taken.get(step) for step in written},
               "the kernel writes %s, the next module takes %s" % (written, taken))
        numbers["values_" + "".join(settings)] = len(written)
    return numbers


@check("Triton's autotuning", part=PART)
def triton_tuning(bench):
    """Benchmarks belong to no step and have no values; what was chosen is a fact."""
    trace, facts = traced(bench, "tuned", compiled="all")
    chosen = {key: str(value) for key, value in facts.items() if key.startswith("autotune.")}
    expect(any("shifted_kernel" in key and "BLOCK" in value for key, value in chosen.items()), "facts are %s" % chosen)
    tried = check_tuning(trace, "shifted_kernel")
    found = values_of_kernels(trace, "shifted_kernel")
    expect(set(found) == {("arg:out_ptr", "f32")}, "values of the kernel are %s" % sorted(found))
    steps = [one["step"] for one in found["arg:out_ptr", "f32"]]
    expect(None not in steps and len(set(steps)) == len(steps), "values in steps %s" % steps)
    return {"launches_of_tuning": tried, "values": len(steps), **chosen}


@check("Inductor's autotuning", part=PART)
def inductor_tuning(bench):
    """max-autotune chooses by time, so that bits may differ between runs; its benchmarks belong to no step."""
    done, trace = bench.traced(bench.workload("models", "--model", "max_autotuned"), timeout=400, compiled="all")
    bench.result(done)
    facts = trace.check_clean()["meta"]["facts"]
    chosen = [key for key in facts if key.startswith("autotune.triton_")]
    expect(chosen, "no configuration is a fact: %s" % sorted(facts))
    return {"configurations": len(chosen), "launches_of_tuning": check_tuning(trace, "triton_")}


@check("compiled graph trees", part=PART)
def graph_trees(bench):
    """Replays of CUDA graphs that Inductor made: the same bits, kernels under the places where they were captured, and values by
    the names of the kernels' arguments."""
    trace, _ = traced(bench, "graph_trees", compiled="all")
    launches = [one for one in trace.records("launch") if "triton_" in one["kernel"]]
    replayed = [one for one in launches if one["why"] == "run by a graph launch"]
    expect(replayed, "no kernel of Inductor ran in a graph")
    captured = {(one["kernel"], one["phase"], one["scope"]) for one in launches if one["why"] == "recorded into a graph, not run"}
    elsewhere = {(one["kernel"], one["phase"], one["scope"]) for one in replayed} - captured
    expect(not elsewhere, "replayed under places where they were not captured: %s" % sorted(elsewhere))
    typed = {slot for slot, _ in values_of_kernels(trace, "triton_")}
    expect(any(slot.startswith("arg:out_ptr") for slot in typed), "values are %s" % sorted(typed))
    return {"kernels_in_graphs": len(replayed), "places": len(captured), "typed_operands": len(typed)}
