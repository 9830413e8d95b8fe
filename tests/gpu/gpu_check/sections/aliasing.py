"""Planted buffer-reuse bugs, each found at the op that made it; correct programs, nothing found."""
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


for _case, (_op, _slot) in FAULTS.items():
    CHECKS.add("bug: " + _case, seconds=15)(fault_check(_case, _op, _slot))
for _case in CORRECT:
    CHECKS.add("correct: " + _case, seconds=25)(correct_check(_case))
