"""The behaviour of the driver and CUPTI on which convtrace's ways into a process depend."""
import shutil

from ..bench import expect
from ..check import check

LAUNCH_NAMES = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel")
OUTPUT_RULE = '[[rule]]\nkernel = "gpu_check_*"\noutputs = [3]\ndtype = "f32"\n'
WAYS = ("linked", "dlsym", "proc-address")


def launch_count(driver_callbacks):
    """@return the number of launches among the probe's callbacks, "307 cuLaunchKernel": 12; by id if the library has no names."""
    ids = ("307", "514", "652")  # cuLaunchKernel, cuGraphLaunch, cuLaunchKernelEx: graphs are told apart by callers
    total = 0
    for key, count in driver_callbacks.items():
        number, _, name = key.partition(" ")
        base = name.replace("_ptsz", "")
        total += count if base in LAUNCH_NAMES or (not name and number in ids and number != "514") else 0
    return total


@check("injection", part=1)
def injection(bench):
    """InitializeInjection is called once, inside cuInit."""
    done, probe = bench.probed(bench.native(bench.tree.launches, "--launches", "500"), "subscribed")
    said = bench.program(done)
    expect(probe is not None, "the driver did not load the library of CUDA_INJECTION64_PATH")
    times = probe["initialized_at_ns"]
    expect(len(times) == 1, "InitializeInjection was called %d times" % len(times))
    inside = said["before_init_ns"] <= times[0] <= said["after_init_ns"]
    expect(inside, "InitializeInjection was not called inside cuInit")
    expect(probe["subscribe_result"] == 0, "cuptiSubscribe says %d" % probe["subscribe_result"])
    return {"calls": len(times)}


@check("injection in odd ways", part=1)
def odd_injection(bench):
    """Records how the driver handles a missing injection path, a relative one, a library that refuses, and a second context."""
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
    # Convtrace depends on these results; the others are only for docs/gpu-results.md.
    expect(numbers["missing_works"], "a path that does not exist breaks CUDA")
    expect(numbers["two_contexts_calls"] == 1, "InitializeInjection was called %d times" % numbers["two_contexts_calls"])
    expect(numbers["two_contexts_launches_seen"] == 500, "%d of 500 launches seen" % numbers["two_contexts_launches_seen"])
    return numbers


@check("ways to the driver", part=1)
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


@check("operands", part=1)
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


@check("threads", part=1)
def threads(bench):
    """16 threads that launch, allocate and free at once; exact counts."""
    command = bench.native(bench.tree.launches, "--threads", "16", "--launches", "5000", "--churn")
    done, trace = bench.traced(command, timeout=300)
    said = bench.program(done)
    records, lost = trace.info["records"], sum(trace.info["lost"].values())
    expect(records["launch"] + lost >= said["launches"], "launches are missing without being counted as lost")
    expect(lost or records["launch"] == said["launches"], "more launches than there were")
    return {"launches": said["launches"], "lost": lost}


@check("capture that any thread can break", part=1)
def strict_capture(bench):
    """A capture in global mode while statistics are prepared."""
    command = bench.native(bench.tree.launches, "--launches", "500", "--capture")
    done, trace = bench.traced(command, rules=OUTPUT_RULE)
    bench.program(done)
    graphs = sum(r["kernel"] == "cuGraphLaunch" for r in trace.records("launch"))
    expect(graphs == 1, "%d graph launches" % graphs)
    return {"graph_launches": graphs, "values": trace.info["records"].get("stats", 0)}
