"""What the driver and CUPTI do: the facts that convtrace's ways into a process rest on."""
import shutil

from ..bench import Skip, expect
from ..check import Checks

CHECKS = Checks()
LAUNCH_NAMES = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel")
OUTPUT_RULE = '[[rule]]\nkernel = "gpu_check_*"\noutputs = [3]\ndtype = "f32"\n'
EVERY_KERNEL = '[[rule]]\nkernel = "*"\noutputs = "auto"\n'
WAYS = ("linked", "dlsym", "proc-address")


def launch_count(driver_callbacks):
    """Launches among the probe's callbacks, "307 cuLaunchKernel": 12; by id where the library tells no names."""
    ids = ("307", "514", "652")  # cuLaunchKernel, cuGraphLaunch, cuLaunchKernelEx: graphs are told apart by callers
    total = 0
    for key, count in driver_callbacks.items():
        number, _, name = key.partition(" ")
        base = name.replace("_ptsz", "")
        total += count if base in LAUNCH_NAMES or (not name and number in ids and number != "514") else 0
    return total


@CHECKS.add("injection", seconds=10)
def injection(bench):
    """When InitializeInjection is called, and how often."""
    done, probe = bench.probed(bench.native(bench.tree.launches, "--launches", "500"), "subscribed")
    said = bench.program(done)
    expect(probe is not None, "the driver did not load the library of CUDA_INJECTION64_PATH")
    times = probe["initialized_at_ns"]
    expect(len(times) == 1, "InitializeInjection was called %d times" % len(times))
    inside = said["before_init_ns"] <= times[0] <= said["after_init_ns"]
    expect(inside, "InitializeInjection was not called inside cuInit")
    expect(probe["subscribe_result"] == 0, "cuptiSubscribe says %d" % probe["subscribe_result"])
    return {"calls": len(times), "ms_after_cuInit_began": (times[0] - said["before_init_ns"]) / 1e6}


@CHECKS.add("injection in odd ways", seconds=20)
def odd_injection(bench):
    """What the driver makes of a path that is none, of a relative one, of a refusal, and of a second context."""
    command = bench.native(bench.tree.launches, "--launches", "500")
    numbers = {}
    for name, path in (("none", "none"), ("missing", "/nowhere/lib.so")):
        numbers[name + "_works"] = bench.run(command, CUDA_INJECTION64_PATH=path).code == 0
    shutil.copy(bench.tree.probe, bench.folder / "probe.so")  # the programs run in this folder
    for name, settings, options in (("relative", {"CUDA_INJECTION64_PATH": "./probe.so"}, ()),
                                    ("refusing", {"GPU_PROBE_RETURNS": "0"}, ()), ("two_contexts", {}, ("--contexts",))):
        done, probe = bench.probed([*command, *options], "launch", **settings)
        numbers.update({name + "_works": done.code == 0, name + "_calls": len(probe["initialized_at_ns"]) if probe else 0,
                        name + "_launches_seen": launch_count(probe["driver"]) if probe else 0})
        if probe:
            numbers["symbols_are_global"] = probe["global"]
    bench.note(numbers)
    # What convtrace rests on; the rest is for docs/gpu-results.md.
    expect(numbers["missing_works"], "a path that does not exist breaks CUDA")
    expect(numbers["two_contexts_calls"] == 1, "InitializeInjection was called %d times" % numbers["two_contexts_calls"])
    expect(numbers["two_contexts_launches_seen"] == 500, "%d of 500 launches seen" % numbers["two_contexts_launches_seen"])
    return numbers


@CHECKS.add("ways to the driver", seconds=10)
def ways(bench):
    """However a program finds the launch function, every launch is in the trace and none is merely observed."""
    numbers = {}
    for way in WAYS:
        done, trace = bench.traced(bench.native(bench.tree.launches, "--launches", "1000", "--way", way), way)
        said = bench.program(done)
        launches = trace.records("launch")
        trace.check_clean()
        expect(len(launches) == said["launches"], "%s: %d launches, %d in the trace" % (way, said["launches"], len(launches)))
        observed = sum(r["why"] == "launched outside the gate" for r in launches)
        without = sum(not r["operands"] for r in launches)
        expect(observed == 0, "%s: %d launches passed the gate by" % (way, observed))
        expect(without == 0, "%s: %d launches have no operands" % (way, without))
        records = trace.info["records"]
        expect((records["alloc"], records["free"]) == (said["allocations"], said["frees"]), "%s: allocations differ" % way)
        numbers[way + "_launches"] = len(launches)
    return numbers


@CHECKS.add("operands", seconds=15)
def operands(bench):
    """Both kinds of kernel handle, an extra buffer, pointers in a struct, a tensor map: every address is found."""
    done, trace = bench.traced(bench.native(bench.tree.operands))
    said = bench.program(done)
    launches = trace.records("launch")
    expect(len(launches) == len(said["launches"]), "%d launches in the trace" % len(launches))
    for launch, wanted in zip(launches, said["launches"]):
        found = {operand["address"] for operand in launch["operands"]}
        missing = [hex(address) for address in wanted["addresses"] if address not in found]
        expect(not missing, "%s: %s are not among the operands" % (wanted["what"], missing))
    facts = ("param_info_of_cast_kernel", "name_of_cast_kernel", "map_begins_with_address")
    done, probe = bench.probed(bench.native(bench.tree.operands), "all")
    bench.program(done)
    return {"launches": len(launches), "without_tensor_map": said["why_no_tensor_map"] or "no", **{key: said[key] for key in facts},
            "names_that_cupti_gives": ", ".join(sorted(probe["kernels"])) if probe else "none"}


@CHECKS.add("threads", seconds=40)
def threads(bench):
    """16 threads that launch, allocate and free at once; exact counts."""
    each = "20000" if bench.full else "2000"
    command = bench.native(bench.tree.launches, "--threads", "16", "--launches", each, "--churn")
    done, trace = bench.traced(command, timeout=300)
    said = bench.program(done)
    records, lost = trace.info["records"], sum(trace.info["lost"].values())
    expect(records["launch"] + lost >= said["launches"], "launches are missing without being counted as lost")
    expect(lost or records["launch"] == said["launches"], "more launches than there were")
    return {"launches": said["launches"], "lost": lost}


@CHECKS.add("launch cost", seconds=60, alone=True)
def launch_cost(bench):
    """A launch of eight parameters: bare, under CUPTI in several ways, recorded, with statistics of its output."""
    command = bench.native(bench.tree.launches, "--launches", "60000" if bench.full else "20000")
    wide = [*command, "--wide", "--launches", "2000"]
    prepared = [*command, "--pause", "1000" if not bench.is_fake else "300"]
    rounds = 1 if bench.is_fake else 5 if bench.full else 3

    def plain(what=command):
        return bench.program(bench.run(what))["ns_per_launch"]

    def probed(callbacks):
        return lambda: bench.program(bench.probed(command, callbacks)[0])["ns_per_launch"]

    def traced(what=command, **settings):
        return lambda: bench.program(bench.traced(what, **settings)[0])["ns_per_launch"]

    ways = {"bare": plain, **{"cupti_" + callbacks: probed(callbacks) for callbacks in ("subscribed", "launch", "list", "driver", "all")},
            "off": traced(mode="off"), "recorded": traced(mode="launches"), "stacks": traced(mode="launches", stacks="all"),
            "sampled": traced(prepared, rules=OUTPUT_RULE), "wide_bare": lambda: plain(wide), "wide_recorded": traced(wide, mode="launches")}
    samples = {name: [] for name in ways}
    for _ in range(rounds):  # in turns, so that a drift of the machine hits all
        for name, one in ways.items():
            samples[name].append(one())
    numbers = {name + "_ns": sorted(values)[rounds // 2] for name, values in samples.items()}
    added = numbers["recorded_ns"] - numbers["bare_ns"]
    numbers["added_ns"] = added
    numbers["added_share"] = added / numbers["bare_ns"]
    numbers["own_ns"] = numbers["recorded_ns"] - numbers["cupti_list_ns"]  # beside CUPTI's part
    bench.note(numbers)
    bench.judge("added time of a launch in ns", added, 400)
    bench.judge("added time over a bare launch", numbers["added_share"], 0.25)
    return numbers


@CHECKS.add("launch cost under PyTorch", seconds=60, alone=True)
def launch_cost_under_pytorch(bench):
    """Host time of a small operation, through the runtime: plain, under CUPTI, recorded, with stacks."""
    command = bench.workload("small_ops")

    def nanoseconds(done):
        return bench.result(done)["ns"]

    numbers = {"plain_ns": nanoseconds(bench.run(command))}
    if bench.device == "cuda":
        for callbacks in ("subscribed", "list", "driver", "all"):
            numbers["cupti_%s_ns" % callbacks] = nanoseconds(bench.probed(command, callbacks)[0])
    numbers["recorded_ns"] = nanoseconds(bench.traced(command, mode="launches")[0])
    numbers["stacks_ns"] = nanoseconds(bench.traced(command, mode="launches", stacks="all")[0])
    return numbers


@CHECKS.add("capture that any thread can break", seconds=20)
def strict_capture(bench):
    """A capture in global mode while statistics are prepared."""
    command = bench.native(bench.tree.launches, "--launches", "500", "--capture")
    done, trace = bench.traced(command, rules=OUTPUT_RULE)
    bench.program(done)
    graphs = sum(r["kernel"] == "cuGraphLaunch" for r in trace.records("launch"))
    expect(graphs == 1, "%d graph launches" % graphs)
    return {"graph_launches": graphs, "values": trace.info["records"].get("stats", 0)}


@CHECKS.add("a million launches from one thread", seconds=120, full_only=True)
def million(bench):
    return launch_under_load(bench, "1", "1000000" if not bench.is_fake else "2000")


@CHECKS.add("a million launches from 16 threads", seconds=120, full_only=True)
def million_of_threads(bench):
    return launch_under_load(bench, "16", "62500" if not bench.is_fake else "500")


def launch_under_load(bench, threads, launches):
    """Statistics behind each launch: does it hang, does it lose launches without counting them?"""
    command = bench.native(bench.tree.launches, "--threads", threads, "--launches", launches,
                           "--pause", "2000" if not bench.is_fake else "300")
    done, trace = bench.traced(command, timeout=600, rules=OUTPUT_RULE)
    said, info = bench.program(done), trace.info
    numbers = {"values": info["records"]["stats"], "lost": sum(info["lost"].values())}
    expect(info["records"]["launch"] + numbers["lost"] >= said["launches"], "launches are missing")
    expect(numbers["values"] > 0, "no values came out")
    return numbers


def check_same_results(bench, command, **settings):
    """A traced run computes what a plain one does, and launches are in its trace. @return the trace's counts."""
    environment = {key: settings.pop(key) for key in list(settings) if key.isupper()}
    plain = bench.result(bench.run(command, **environment))
    done, trace = bench.traced(command, environment=environment, **settings)
    bench.expect_same(plain, bench.result(done), lambda: bench.result(bench.run(command, **environment)))
    return trace.info["records"]


@CHECKS.add("insertion under PyTorch", seconds=30)
def insertion_under_pytorch(bench):
    """Statistics behind each launch, with lazy and eager module loading, and with launches that wait for the device."""
    modes = [("CUDA_MODULE_LOADING", "LAZY")]
    if bench.full:
        modes += [("CUDA_MODULE_LOADING", "EAGER"), ("CUDA_LAUNCH_BLOCKING", "1")]
    command = bench.workload("models", "--model", "gpt")
    return {value + "_values": check_same_results(bench, command, rules=EVERY_KERNEL, **{name: value})["stats"]
            for name, value in modes}


def insertion_check(model):
    def check(bench):
        command = bench.workload("models", "--model", model)
        return {"values": check_same_results(bench, command, rules=EVERY_KERNEL)["stats"]}
    return check


for _model in ("cnn", "triton_op", "compiled", "distributed", "graph"):  # cuDNN, Triton, Inductor, NCCL, capture
    CHECKS.add("insertion under PyTorch: " + _model, seconds=60, full_only=True)(insertion_check(_model))


@CHECKS.add("operands of PyTorch's kernels", seconds=30)
def operands_of_pytorch(bench):
    """Whether the tensors of matrix products, attention and Triton kernels are among the operands of a launch."""
    done, trace = bench.traced(bench.workload("known_operands"))
    said = bench.result(done)
    launches = [(r["kernel"], {operand["address"] for operand in r["operands"]}) for r in trace.records("launch")]
    for one in said["operations"]:
        wanted = set(one["addresses"])
        kernel, best = max(((kernel, len(wanted & found)) for kernel, found in launches), key=lambda pair: pair[1])
        bench.note({one["what"]: "%d of %d by %s" % (best, len(wanted), kernel[:60])})
        expect(best > 0, "%s: no launch has any of its tensors" % one["what"])


@CHECKS.add("allocator", seconds=30)
def allocator(bench):
    """PyTorch's own count of blocks against the trace's, and which libcupti is mapped."""
    done, trace = bench.traced(bench.workload("allocator"))
    said = bench.result(done)
    expect(len(said["hooks"]) >= 2, "libc10 has no hooks to report memory with: %s" % said["hooks"])
    expect(len(said["cupti"]) == 1, "more or less than one libcupti is mapped: %s" % said["cupti"])
    blocks = [r for r in trace.records() if r["record"] in ("alloc", "free") and r["source"] == "framework"]
    counts = [sum(r["record"] == kind for r in blocks) for kind in ("alloc", "free")]
    expect(counts == [said["allocated"], said["freed"]],
           "PyTorch counts %s, the trace %s" % ([said["allocated"], said["freed"]], counts))
    return {"allocations": counts[0], "frees": counts[1], "cupti": said["cupti"][0]}


def callback_counts(bench, command, program=False):
    done, probe = bench.probed(command, "all", timeout=120)
    (bench.program if program else bench.result)(done)
    if probe is None:
        raise Skip("the program used no CUDA")
    expect(probe["subscribe_result"] == 0, "cuptiSubscribe says %d" % probe["subscribe_result"])
    names = {"%s %s" % (domain, key): count for domain in ("driver", "runtime") for key, count in probe[domain].items()}
    return {"launches": launch_count(probe["driver"]), "kernels": len(probe["kernels"]), **names, **probe["nested"]}


@CHECKS.add("callbacks of the runtime", seconds=10)
def callbacks_of_runtime(bench):
    """Which calls of the driver each call of the CUDA runtime makes."""
    if bench.is_fake or not bench.tree.runtime.exists():
        raise Skip("the CUDA runtime does not work on the fake driver" if bench.is_fake else "gpu_runtime is not in this tree")
    return callback_counts(bench, bench.native(bench.tree.runtime), program=True)


@CHECKS.add("callbacks of PyTorch", seconds=40)
def callbacks_of_pytorch(bench):
    """Which driver and runtime callbacks its calls produce."""
    return callback_counts(bench, bench.workload("models", "--model", "gpt"))


@CHECKS.add("callbacks of Triton", seconds=40)
def callbacks_of_triton(bench):
    return callback_counts(bench, bench.workload("models", "--model", "triton_op"))


@CHECKS.add("callbacks of CuPy", seconds=30)
def callbacks_of_cupy(bench):
    return callback_counts(bench, bench.other_framework("cupy"))


@CHECKS.add("callbacks of JAX", seconds=40)
def callbacks_of_jax(bench):
    return callback_counts(bench, bench.other_framework("jax"))


@CHECKS.add("profiler beside us", seconds=90)
def profiler(bench):
    """torch.profiler in a traced process: both finish, nobody crashes, the program's results stay."""
    command = bench.workload("models", "--model", "gpt", "--profile")
    numbers = {}
    for name, environment in (("plain", {}), ("daemon", {"KINETO_USE_DAEMON": "1"})):
        plain = bench.result(bench.run(command, **environment))
        done, trace = bench.traced(command, environment=environment)
        traced = bench.result(done)
        bench.expect_same(plain, traced, lambda: bench.result(bench.run(command, **environment)))
        expect(trace.info["records"].get("launch", 0) or bench.device == "cpu", "%s: no launch in the trace" % name)
        numbers.update({name + "_kernels_profiled_alone": plain["profiled_kernels"],
                        name + "_kernels_profiled_traced": traced["profiled_kernels"],
                        name + "_launches_in_trace": trace.info["records"].get("launch", 0),
                        name + "_said": done.err.strip()[-200:]})
    return numbers
