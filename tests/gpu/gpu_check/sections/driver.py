"""What the driver and CUPTI do: the facts that convtrace's ways into a process rest on."""
from ..bench import Skip, expect
from ..check import Checks

CHECKS = Checks()
AT_ONCE = False
LAUNCH_NAMES = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel")
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


@CHECKS.add("ways to the driver", seconds=30)
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
    return {"launches": len(launches), "without_tensor_map": said["why_no_tensor_map"] or "no"}


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


@CHECKS.add("launch cost", seconds=60)
def launch_cost(bench):
    """A launch of eight parameters: bare, under CUPTI in several ways, recorded."""
    command = bench.native(bench.tree.launches, "--launches", "60000" if bench.full else "20000")
    rounds = 5 if bench.full else 3

    def median(one):
        return sorted(one() for _ in range(rounds))[rounds // 2]

    def plain():
        return bench.program(bench.run(command))["ns_per_launch"]

    def probed(callbacks):
        return lambda: bench.program(bench.probed(command, callbacks)[0])["ns_per_launch"]

    def traced(**settings):
        return lambda: bench.program(bench.traced(command, **settings)[0])["ns_per_launch"]

    numbers = {"bare_ns": median(plain)}
    for callbacks in ("subscribed", "launch", "driver", "all"):
        numbers["cupti_%s_ns" % callbacks] = median(probed(callbacks))
    numbers["off_ns"] = median(traced(mode="off"))
    numbers["recorded_ns"] = median(traced(mode="launches"))
    added = numbers["recorded_ns"] - numbers["bare_ns"]
    numbers["added_ns"] = added
    numbers["added_share"] = added / numbers["bare_ns"]
    bench.judge("added time of a launch in ns", added, 400)
    bench.judge("added time over a bare launch", numbers["added_share"], 0.25)
    return numbers


@CHECKS.add("insertion from the callback", seconds=40)
def insertion(bench):
    """The second way of inserting our kernels, under load: does it hang, does it lose anything?"""
    rules = '[[rule]]\nkernel = "gpu_check_*"\noutputs = [3]\ndtype = "f32"\n'
    numbers = {}
    for way in ("gate", "callback"):
        command = bench.native(bench.tree.launches, "--threads", "4", "--launches", "20000" if bench.full else "1000",
                               "--pause", "2000" if not bench.is_fake else "300")
        done, trace = bench.traced(command, way, timeout=120, rules=rules, insert=way)
        said = bench.program(done)
        info = trace.info
        values = info["records"]["stats"]
        numbers["%s_values" % way] = values
        numbers["%s_lost" % way] = sum(info["lost"].values())
        expect(info["records"]["launch"] + numbers["%s_lost" % way] >= said["launches"], "%s: launches are missing" % way)
        expect(values > 0, "%s: no values came out" % way)
    return numbers


def check_same_results(bench, command, **settings):
    """A traced run computes what a plain one does, and launches are in its trace. @return the trace's counts."""
    environment = {key: settings.pop(key) for key in list(settings) if key.isupper()}
    plain = bench.result(bench.run(command, **environment))
    done, trace = bench.traced(command, environment=environment, **settings)
    expect(bench.result(done)["digest"] == plain["digest"], "results changed under %s %s" % (environment, settings))
    return trace.info["records"]


@CHECKS.add("insertion under PyTorch", seconds=60)
def insertion_under_pytorch(bench):
    """Both ways of inserting, with lazy and eager module loading, and with launches that wait for the device."""
    numbers = {}
    modes = [("CUDA_MODULE_LOADING", "LAZY")]
    if bench.full:
        modes += [("CUDA_MODULE_LOADING", "EAGER"), ("CUDA_LAUNCH_BLOCKING", "1")]
    command = bench.workload("models", "--model", "gpt")
    for way in ("gate", "callback"):
        for name, value in modes:
            records = check_same_results(bench, command, insert=way, rules=EVERY_KERNEL, **{name: value})
            numbers["%s_%s_values" % (way, value)] = records["stats"]
    return numbers


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


def callback_counts(bench, command):
    done, probe = bench.probed(command, "all", timeout=120)
    bench.result(done)
    if probe is None:
        raise Skip("the program used no CUDA")
    expect(probe["subscribe_result"] == 0, "cuptiSubscribe says %d" % probe["subscribe_result"])
    names = {"%s %s" % (domain, key): count for domain in ("driver", "runtime") for key, count in probe[domain].items()}
    return {"launches": launch_count(probe["driver"]), "kernels": len(probe["kernels"]), **names}


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
        expect(plain["digest"] == traced["digest"], "results changed (%s)" % name)
        numbers.update({name + "_kernels_profiled_alone": plain["profiled_kernels"],
                        name + "_kernels_profiled_traced": traced["profiled_kernels"],
                        name + "_launches_in_trace": trace.info["records"]["launch"],
                        name + "_said": done.err.strip()[-200:]})
    return numbers
