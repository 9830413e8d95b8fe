"""Planted buffer-reuse bugs, each found at the op or launch that made it; other kinds of findings; poison and quarantine;
correct programs, nothing found."""
import json
import shutil

from ..bench import Skip, Trace, expect
from ..check import Checks

CHECKS = Checks()
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
            expect(first == 50, "found in step %d, not in step 50" % first)
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


LAUNCHES = {  # scenario of cuda_alias: kind of the one finding, None: nothing is wrong
    "dangling": "use-after-free", "dangling-interior": "use-after-free", "dangling-at-step-50": "use-after-free",
    "free-async-before-launch": "use-after-free", "workspace-moves-after-capture": "use-after-free",
    "missing-record-stream": "cross-stream-reuse", "record-stream": None, "wait-before-reuse": None, "graph-pool": None,
    "stale-words": None, "end-pointer": None, "churn": None,
}


@CHECKS.add("launches that take freed memory", seconds=30)
def launches(bench):
    """Programs for the driver: what the kernel takes that should not, by address; and correct ones that look alike."""
    for scenario, kind in LAUNCHES.items():
        done, trace = bench.traced(bench.native(bench.tree.alias, scenario), scenario)
        expect(done.code == 0, "%s: ended with %d: %s" % (scenario, done.code, (done.out + done.err)[-300:]))
        found = [(f["kind"], f["kernel"], f["slot"]) for f in trace.findings]
        expect(found == ([(kind, "touch", "arg:0")] if kind else []), "%s: found %s" % (scenario, found))
    return {"scenarios": len(LAUNCHES)}


@CHECKS.add("random histories of memory", seconds=20)
def random_histories(bench):
    """Programs whose faults are known when they are made up: all are found, nothing else is."""
    total, rounds = 0, 50 if bench.full else 10
    for seed in range(rounds):
        done, trace = bench.traced(bench.native(bench.tree.alias, "random", str(seed)), "random%d" % seed)
        expect(done.code == 0, "seed %d: ended with %d: %s" % (seed, done.code, (done.out + done.err)[-300:]))
        found = ["%s %s %d" % (f["kind"], f["slot"], f["address"] // 4096 * 4096) for f in trace.findings]
        expect(found == done.out.split("\n")[:-1], "seed %d: found %s, planted %s" % (seed, found, done.out.split("\n")[:-1]))
        total += len(found)
    return {"planted": total, "found": total}


@CHECKS.add("every faulty op", seconds=30)
def every_faulty_op(bench):
    """The faulty ops of the observer's tests: each is named, at the right slot, and no other."""
    done, trace = bench.traced(bench.observed("aliasing", "faulty"))
    bench.succeeded(done)
    names = [line.split()[0] for line in done.out.splitlines() if line[0] != "#"]
    found = trace.findings
    expect({f["op"] for f in found} == set(names), "named are %s" % sorted({str(f["op"]) for f in found}))
    errors = [f for f in found if f["level"] == "error"]
    kinds_found = {f["kind"] for f in errors} - {"stale-read"}
    expect(kinds_found == {"freed-under-output"}, "errors of the kinds %s" % kinds_found)
    mutated = {f["op"]: f["slot"] for f in found if f["kind"] == "input-mutated"}
    expect(mutated == {"ChangesInput": "input:0", "ChangesGradientBackward": "grad_output:0", "aliasing_test::denies": "input:0"},
           "mutated are %s" % mutated)
    freed = {f["op"]: f for f in errors if f["kind"] == "freed-under-output"}
    # An argument that is returned has one storage with the result: nothing can be freed under it.
    expect(set(freed) == set(names) - {"aliasing_test::hidden"} - set(mutated), "freed under %s" % sorted(freed))
    expect(freed["GivesNinth"]["slot"] == "output:8", "of nine outputs, %s" % freed["GivesNinth"]["slot"])
    expect(freed["GivesInterior"]["bytes"] == 4 * (64 * 64 - 512), "interior: %d bytes" % freed["GivesInterior"]["bytes"])
    return {"ops": len(names), "findings": len(found)}


@CHECKS.add("every correct program", seconds=40)
def every_correct_program(bench):
    """In-place ops, views, DLPack with keep-alive, checkpointing, tied weights, resized storage, LSTM, AMP, churn, a loader."""
    plain = bench.run(bench.observed("aliasing", "correct"))
    bench.succeeded(plain)
    done, trace = bench.traced(bench.observed("aliasing", "correct"))
    bench.succeeded(done)
    found = {(f["op"], f["kind"], f["level"]) for f in trace.findings}
    shared = ("Dlpack", "Numpy", "NumpyOwner") if bench.device == "cpu" else ("Dlpack",)
    expect(found == {(op, "output-aliases-input", "warning") for op in shared}, "found: %s" % sorted(map(str, found)))
    if bench.device == "cpu":  # atomic sums of embeddings and the like may differ on a GPU; `frameworks` compares bits
        expect(done.out == plain.out, "the results are other ones")
    return {"programs": len(plain.out.splitlines())}


@CHECKS.add("two ranks, one faulty", seconds=30)
def two_ranks(bench):
    done, _ = bench.traced(bench.observed("aliasing_ranks"), environment={"GLOO_SOCKET_IFNAME": "lo"},
                           output=bench.folder / "rank-%r.ctrace")
    bench.succeeded(done)
    for rank, wanted in ((0, []), (1, [("Doubled", "freed-under-output", step) for step in range(3)])):
        trace = Trace(bench.tree, bench.folder / ("rank-%d.ctrace" % rank))
        found = [(f["op"], f["kind"], f["step"]) for f in trace.findings if f["level"] == "error" and f["kind"] != "stale-read"]
        expect(found == wanted, "rank %d: found %s" % (rank, found))


@CHECKS.add("faulty ops in C++", seconds=60)
def faulty_ops_in_cpp(bench):
    """An extension as users write them, compiled here: forward, backward, a schema that hides what it returns."""
    compiler = shutil.which("c++") or shutil.which("g++")
    command = bench.observed("aliasing_cpp", bench.folder / "ops.so")
    if compiler is None:
        raise Skip("no C++ compiler")
    about = bench.run([bench.python, "-c", "import os, torch; print(os.path.dirname(torch.__file__)); "
                       "print(int(torch.compiled_with_cxx11_abi()))"])
    root, abi = about.out.split("\n")[:2]
    built = bench.run([compiler, "-std=c++20", "-shared", "-fPIC", "-O0", "-w", "-o", bench.folder / "ops.so",
                       bench.tree.observed / "aliasing_ops.cpp", "-I", root + "/include", "-D_GLIBCXX_USE_CXX11_ABI=" + abi,
                       "-L", root + "/lib", "-ltorch", "-ltorch_cpu", "-lc10"])
    if built.code != 0:
        raise Skip("the extension does not compile here: " + built.err.strip()[-300:])
    done, trace = bench.traced(command)
    bench.succeeded(done)
    errors = {(f["op"], f["kind"], f["slot"]) for f in trace.findings if f["level"] == "error" and f["kind"] != "stale-read"}
    expect(errors == {("aliasing_cpp::borrow", "freed-under-output", "output:0"),
                      ("aliasing_cpp::borrow_gradient", "freed-under-output", "output:0")}, "found: %s" % sorted(errors))
    expect(("output-aliases-input", "aliasing_cpp::hide", "output:0") in kinds(trace), "a hidden argument was not told")


STREAMS = {"no_record_stream": "cross-stream-reuse", "record_stream": None, "waited": None,
           "workspace": "use-after-free", "kept": None}


def stream_check(case, kind):
    def check(bench):
        plain = bench.result(bench.run(bench.workload("streams", "--case", case)))
        done, trace = bench.traced(bench.workload("streams", "--case", case))
        said = bench.result(done)
        found = {f["kind"] for f in trace.findings}
        if case == "no_record_stream" and not said["reused"]:
            raise Skip("PyTorch's allocator did not give the memory out again")
        expect(found == ({kind} if kind else set()), "found: %s" % trace.findings[:2])
        if kind is None:
            expect(said["result"] == plain["result"], "the result is another one")
        return {"findings": len(trace.findings)}
    return check


for _case, _kind in STREAMS.items():
    CHECKS.add("streams and graphs: " + _case, seconds=20)(stream_check(_case, _kind))
for _case, (_op, _slot) in FAULTS.items():
    CHECKS.add("bug: " + _case, seconds=15)(fault_check(_case, _op, _slot))
for _case in CORRECT:
    CHECKS.add("correct: " + _case, seconds=25)(correct_check(_case))
