"""Planted buffer-reuse bugs, each found at the op or launch that made it; other kinds of findings; poison and quarantine;
correct programs, nothing found."""
import json
import shutil

from ..bench import Skip, Trace, expect
from ..check import check

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


@check("kind: input-mutated", part=9)
def input_mutated(bench):
    done, trace = bench.traced(bench.workload("op_values", "--case", "mutated"))
    bench.result(done)
    expect(("input-mutated", "Mutates", "input:0") in kinds(trace), "found: %s" % kinds(trace))


@check("kind: autotune-mutation", part=9)
def autotune_mutation(bench):
    done, trace = bench.traced(bench.workload("op_values", "--case", "tuned"))
    bench.result(done)
    expect(("autotune-mutation", "Tuned", "input:0") in kinds(trace), "found: %s" % kinds(trace))


@check("kind: alias-pattern-differs", part=9)
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


@check("poison: memory that nobody wrote", part=9)
def poison(bench):
    done, trace = bench.traced(bench.workload("op_values", "--case", "unwritten"), poison=1, strict_alloc=1)
    nan = bench.result(done)["nan"]
    expect(nan == 0.5, "%g of the result is poison, not half" % nan)
    expect(set(kinds(trace)) == {("never-written", "Half", "output:0")}, "found: %s" % kinds(trace))


@check("quarantine: memory that was freed", part=9)
def quarantine(bench):
    done, _ = bench.traced(bench.workload("op_values", "--case", "freed"), poison=1, quarantine=1, strict_alloc=1)
    nan = bench.result(done)["nan"]
    expect(nan == 1, "%g of the freed memory is poison" % nan)


@check("poison and quarantine: a correct program", part=9)
def undisturbed(bench):
    command = bench.workload("aliasing", "--case", "passing")
    plain = bench.result(bench.run(command, PYTORCH_NO_CUDA_MEMORY_CACHING="1"))
    # Memory of the CPU, too: without this the trace says that it is poisoned no longer.
    done, trace = bench.traced(command, poison=1, quarantine=1, strict_alloc=1, cpu_alloc="on")
    expect(bench.result(done)["loss"] == plain["loss"], "the loss changed")
    trace.check_clean()


LAUNCHES = {  # scenario of cuda_alias: kind of the one finding, None: nothing is wrong
    "dangling": "use-after-free", "dangling-interior": "use-after-free", "dangling-at-step-50": "use-after-free",
    "free-async-before-launch": "use-after-free", "workspace-moves-after-capture": "use-after-free",
    "missing-record-stream": "cross-stream-reuse", "record-stream": None, "wait-before-reuse": None, "graph-pool": None,
    "stale-words": None, "end-pointer": None, "churn": None,
}


@check("launches that take freed memory", part=1)
def launches(bench):
    """Programs for the driver: what the kernel takes that should not, by address; and correct ones that look alike."""
    for scenario, kind in LAUNCHES.items():
        done, trace = bench.traced(bench.native(bench.tree.alias, scenario), scenario)
        expect(done.code == 0, "%s: ended with %d: %s" % (scenario, done.code, (done.out + done.err)[-300:]))
        found = [(f["kind"], f["kernel"], f["slot"]) for f in trace.findings]
        expect(found == ([(kind, "touch", "arg:0")] if kind else []), "%s: found %s" % (scenario, found))
    return {"scenarios": len(LAUNCHES)}


@check("random histories of memory", part=1)
def random_histories(bench):
    """Programs whose faults are known when they are made up: all are found, nothing else is."""
    total, rounds = 0, 20
    for seed in range(rounds):
        done, trace = bench.traced(bench.native(bench.tree.alias, "random", str(seed)), "random%d" % seed)
        expect(done.code == 0, "seed %d: ended with %d: %s" % (seed, done.code, (done.out + done.err)[-300:]))
        found = ["%s %s %d" % (f["kind"], f["slot"], f["address"] // 4096 * 4096) for f in trace.findings]
        planted = done.out.split("\n")[:-1]  # convtrace puts findings of a kind together
        expect(sorted(found) == sorted(planted), "seed %d: found %s, planted %s" % (seed, found, planted))
        total += len(found)
    return {"planted": total, "found": total}


@check("every faulty op", part=9)
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


NEEDED_PROGRAMS = "needed_ops", "needed_state", "needed_calls"
NEEDED = {  # case of these, by the name of its model: kind, op, slot
    "wrong_saved_of_tanh": ("input-mutated", "SquareBackward", "saved:0"),
    "wrong_saved_of_exp": ("overwritten", "SquareBackward", "saved_shared:0"),
    "wrong_gradient_counted": ("input-mutated", "TenthBackward", "grad_output:0"),
    "wrong_buffer_saved": ("overwritten", "GateBackward", "saved:1"),
    "wrong_library_gradient": ("input-mutated", "inplace_tests::squareBackward", "saved:0"),
    "wrong_weight_between": ("overwritten", "WeightedBackward", "saved:1"),
    "wrong_second_backward": ("overwritten", "SquareBackward", "grad_input:0"),
}


@check("memory that is still needed", part=9)
def needed_memory(bench):
    """Saved tensors, gradients and outputs that somebody writes too early: each is told, at the op that wrote."""
    found = {}
    for program in NEEDED_PROGRAMS:
        done, trace = bench.traced(bench.observed(program, "wrong"), name=program)
        bench.succeeded(done)
        for one in trace.findings:
            if one["level"] == "error":
                found.setdefault(one["scope"].partition(".")[0], set()).add((one["kind"], one["op"], one["slot"]))
    missing = {case: sorted(map(str, found.get(case, ()))) for case, told in NEEDED.items() if told not in found.get(case, ())}
    expect(not missing, "not told, but: %s" % missing)
    return {"cases": len(NEEDED)}


@check("memory that only its owner needs", part=9)
def own_memory(bench):
    for program in NEEDED_PROGRAMS:
        done, trace = bench.traced(bench.observed(program, "right"), name=program)
        bench.succeeded(done)
        expect(trace.findings == [], "found: %s" % trace.findings[:2])


@check("every correct program", part=9)
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


@check("two ranks, one faulty", part=9)
def two_ranks(bench):
    done, _ = bench.traced(bench.observed("aliasing_ranks"), environment={"GLOO_SOCKET_IFNAME": "lo"},
                           output=bench.folder / "rank-%r.ctrace")
    bench.succeeded(done)
    for rank, wanted in ((0, []), (1, [("Doubled", "freed-under-output", step) for step in range(3)])):
        trace = Trace(bench, bench.folder / ("rank-%d.ctrace" % rank))
        found = sorted((f["op"], f["kind"], f["step"]) for f in trace.findings if f["level"] == "error" and f["kind"] != "stale-read")
        expect(found == wanted, "rank %d: found %s" % (rank, found))


@check("faulty ops in C++", part=9)
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


STREAMS = {"no_record_stream": (9, "cross-stream-reuse"), "record_stream": (9, None), "waited": (9, None),
           "workspace": (5, "use-after-free"), "kept": (5, None)}  # case: part, finding


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


@check("side stream with expandable segments", part=9)
def side_stream(bench):
    """Statistics of what another stream makes, while its memory is unmapped: same bits, same end."""
    command = bench.workload("streams", "--case", "side_stream")
    plain = bench.result(bench.run(command))
    done, trace = bench.traced(command)
    expect(bench.result(done)["result"] == plain["result"], "the results are other ones under convtrace")
    return {"values": trace.info["records"].get("stats", 0), "not_computed": sum(trace.info["lost"].values())}


@check("copy to the host under way", part=9)
def copy_under_way(bench):
    """A value of pinned memory is that of the finished copy, or it is counted as not computed."""
    done, trace = bench.traced(bench.workload("streams", "--case", "pinned"))
    sums = bench.result(done)["result"]
    outputs = [r for r in trace.records("stats") if (r["device"], r["slot"]) == ("cpu", "output:0")]
    wrong = [r["sum"] for r in outputs if float(r["sum"]) not in sums]
    expect(not wrong, "%d of %d values are of an unfinished copy, the first %s" % (len(wrong), len(outputs), wrong[:1]))
    lost = sum(trace.info["lost"].values())
    expect(len(outputs) + lost >= len(sums), "%d values and %d counted of %d outputs" % (len(outputs), lost, len(sums)))
    return {"values": len(outputs), "not_computed": lost}


for _case, (_part, _kind) in STREAMS.items():
    check("streams and graphs: " + _case, part=_part)(stream_check(_case, _kind))
for _case, (_op, _slot) in FAULTS.items():
    check("bug: " + _case, part=9)(fault_check(_case, _op, _slot))
for _case in CORRECT:
    check("correct: " + _case, part=9)(correct_check(_case))
