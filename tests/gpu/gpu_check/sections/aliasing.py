"""Planted buffer-reuse bugs, each found at the op that made it; other kinds of findings; poison and quarantine; correct
programs, nothing found."""
import json

from ..bench import expect
from ..check import Checks

CHECKS = Checks()
AT_ONCE = True
FAULTS = {  # case: the op that must be named, its slot
    "forward": ("Returns", "output:0"), "backward": ("ReturnsBackwardBackward", "grad_input:0"),
    "schema": ("gpu_check::hidden", "output:0"), "offset": ("Inside", "output:0"),
    "ninth_output": ("Many", "output:8"), "late": ("Late", "output:0"),
}
CORRECT = ("in_place", "passing", "dlpack")


def fault_check(case, op, slot):
    def check(bench):
        done, trace = bench.traced(bench.workload("aliasing", "--case", case))
        bench.result(done)
        errors = [f for f in trace.findings if f["level"] == "error"]
        expect(errors, "the planted bug was not found")
        for error in errors:
            # Who reads the result afterwards has the op's slot beside its own.
            blamed = error["other"] if error["kind"] == "stale-read" else error["slot"]
            expect(error["kind"] in ("freed-under-output", "stale-read") and (error["op"], blamed) == (op, slot),
                   "the finding blames %s, %s, %s" % (error["kind"], error["op"], blamed))
        expect(any(error["kind"] == "freed-under-output" for error in errors), "the free was not found")
        first = min(error["step"] for error in errors)
        if case == "late":
            expect(first == 4, "found in step %d, not in step 4" % first)
        return {"errors": len(errors), "first_step": first}
    return check


def correct_check(case):
    def check(bench):
        plain = bench.result(bench.run(bench.workload("aliasing", "--case", case)))
        done, trace = bench.traced(bench.workload("aliasing", "--case", case))
        expect(bench.result(done)["loss"] == plain["loss"], "the loss changed")
        trace.check_clean()
    return check


def kinds(trace):
    return [(f["kind"], f["op"], f["slot"]) for f in trace.findings]


@CHECKS.add("kind: input-mutated", seconds=10)
def input_mutated(bench):
    done, trace = bench.traced(bench.workload("op_values", "--case", "mutated"))
    bench.result(done)
    expect(("input-mutated", "Mutates", "input:0") in kinds(trace), "found: %s" % kinds(trace))


@CHECKS.add("kind: autotune-mutation", seconds=20)
def autotune_mutation(bench):
    done, trace = bench.traced(bench.workload("op_values", "--case", "tuned"))
    bench.result(done)
    expect(("autotune-mutation", "Tuned", "input:0") in kinds(trace), "found: %s" % kinds(trace))


@CHECKS.add("kind: alias-pattern-differs", seconds=20)
def alias_pattern(bench):
    traces = []
    for case in ("copy", "same"):
        done, trace = bench.traced(bench.workload("op_values", "--case", case), name=case)
        bench.result(done)
        traces.append(trace.path)
    report = bench.folder / "diff.json"
    bench.run([str(bench.tree.convtrace) + "-diff", *traces, "--json", report])
    found = [(one["run"], one["op"], one["slot"], one["other"]) for one in json.loads(report.read_text())["alias_patterns"]]
    expect(("cand", "Adds", "input:0", "input:1") in found, "found: %s" % found)


@CHECKS.add("poison: memory that nobody wrote", seconds=15)
def poison(bench):
    done, trace = bench.traced(bench.workload("op_values", "--case", "unwritten"), poison=1, strict_alloc=1)
    nan = bench.result(done)["nan"]
    expect(nan == 0.5, "%g of the result is poison, not half" % nan)
    expect(set(kinds(trace)) == {("never-written", "Half", "output:0")}, "found: %s" % kinds(trace))


@CHECKS.add("quarantine: memory that was freed", seconds=15)
def quarantine(bench):
    done, _ = bench.traced(bench.workload("op_values", "--case", "freed"), poison=1, quarantine=1, strict_alloc=1)
    nan = bench.result(done)["nan"]
    expect(nan == 1, "%g of the freed memory is poison" % nan)


@CHECKS.add("poison and quarantine: a correct program", seconds=40)
def undisturbed(bench):
    command = bench.workload("aliasing", "--case", "passing")
    plain = bench.result(bench.run(command, PYTORCH_NO_CUDA_MEMORY_CACHING="1"))
    done, trace = bench.traced(command, poison=1, quarantine=1, strict_alloc=1)
    expect(bench.result(done)["loss"] == plain["loss"], "the loss changed")
    trace.check_clean()


for _case, (_op, _slot) in FAULTS.items():
    CHECKS.add("bug: " + _case, seconds=15)(fault_check(_case, _op, _slot))
for _case in CORRECT:
    CHECKS.add("correct: " + _case, seconds=25)(correct_check(_case))
