"""The launches of PyTorch's calls, and the work that convtrace inserts between them."""
from ..bench import Skip, expect
from ..check import check
from .ways import launch_count

EVERY_KERNEL = '[[rule]]\nkernel = "*"\noutputs = "auto"\n'


def check_same_results(bench, command, **settings):
    """A traced run computes the same as a plain one. @return its trace."""
    environment = {key: settings.pop(key) for key in list(settings) if key.isupper()}
    plain = bench.result(bench.run(command, **environment))
    done, trace = bench.traced(command, environment=environment, **settings)
    bench.expect_same(plain, bench.result(done), lambda: bench.result(bench.run(command, **environment)))
    return trace


@check("insertion under PyTorch", part=2)
def insertion_under_pytorch(bench):
    """Statistics behind each launch, with lazy and eager module loading, and with launches that wait for the device."""
    modes = (("CUDA_MODULE_LOADING", "LAZY"), ("CUDA_MODULE_LOADING", "EAGER"), ("CUDA_LAUNCH_BLOCKING", "1"))
    command = bench.workload("models", "--model", "gpt")
    return {value + "_values": values_of_kernels(bench, command, **{name: value}) for name, value in modes}


def values_of_kernels(bench, command, **environment):
    """A run with a rule for every kernel. @return the number of values behind kernels, which is not 0 on a GPU."""
    trace = check_same_results(bench, command, rules=EVERY_KERNEL, **environment)
    values = sum(r["kernel"] is not None for r in trace.records("stats"))
    expect(values > 0 or bench.device == "cpu", "no value was taken behind any launch")
    return values


def insertion_check(model):
    def check(bench):
        command = bench.workload("models", "--model", model)
        return {"values": values_of_kernels(bench, command)}
    return check


for _model, _part in {"cnn": 8, "triton_op": 8, "compiled": 8, "distributed": 8, "graph": 5}.items():
    check("insertion under PyTorch: " + _model, part=_part)(insertion_check(_model))


@check("operands of PyTorch's kernels", part=2)
def operands_of_pytorch(bench):
    """The tensors of matrix products, attention and Triton kernels are among the operands of a launch."""
    done, trace = bench.traced(bench.workload("known_operands"))
    said = bench.result(done)
    launches = [(r["kernel"], {operand["address"] for operand in r["operands"]}) for r in trace.records("launch")]
    for one in said["operations"]:
        wanted = set(one["addresses"])
        kernel, best = max(((kernel, len(wanted & found)) for kernel, found in launches), key=lambda pair: pair[1])
        bench.note({one["what"]: "%d of %d by %s" % (best, len(wanted), kernel[:60])})
        expect(best > 0, "%s: no launch has any of its tensors" % one["what"])


@check("allocator", part=2)
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
    return {"allocations": counts[0], "frees": counts[1], "cupti": said["cupti"][0].rpartition("site-packages/")[2]}


def callback_counts(bench, command, program=False):
    done, probe = bench.probed(command, "all", timeout=120)
    (bench.program if program else bench.result)(done)
    if probe is None:
        raise Skip("the program used no CUDA")
    expect(probe["subscribe_result"] == 0, "cuptiSubscribe says %d" % probe["subscribe_result"])
    names = {"%s %s" % (domain, key): count for domain in ("driver", "runtime") for key, count in probe[domain].items()}
    return {"launches": launch_count(probe["driver"]), "kernels": len(probe["kernels"]), **names, **probe["nested"]}


@check("callbacks of the runtime", part=2)
def callbacks_of_runtime(bench):
    """Counts the calls of the driver that each call of the CUDA runtime makes."""
    if bench.is_fake or not bench.tree.runtime.exists():
        raise Skip("the CUDA runtime does not work on the fake driver" if bench.is_fake else "gpu_runtime is not in this tree")
    return callback_counts(bench, bench.native(bench.tree.runtime), program=True)


@check("callbacks of PyTorch", part=2)
def callbacks_of_pytorch(bench):
    """Counts the driver and runtime callbacks that PyTorch's calls produce."""
    return callback_counts(bench, bench.workload("models", "--model", "gpt"))


@check("callbacks of Triton", part=8)
def callbacks_of_triton(bench):
    return callback_counts(bench, bench.workload("models", "--model", "triton_op"))


@check("callbacks of CuPy", part=8)
def callbacks_of_cupy(bench):
    return callback_counts(bench, bench.other_framework("cupy"))


@check("callbacks of JAX", part=8)
def callbacks_of_jax(bench):
    return callback_counts(bench, bench.other_framework("jax"))


@check("profiler beside us", part=8)
def profiler(bench):
    """torch.profiler in a traced process sees what it sees in a plain one. Kineto subscribes to CUPTI and gets it from us;
    newer ones, and this one with KINETO_USE_DAEMON, only ask for records, beside our subscription."""
    command = bench.workload("models", "--model", "gpt", "--profile")
    numbers = {}
    for name, environment in (("plain", {}), ("daemon", {"KINETO_USE_DAEMON": "1"})):
        plain = bench.result(bench.run(command, **environment))
        done, trace = bench.traced(command, environment=environment)
        traced = bench.result(done)
        bench.expect_same(plain, traced, lambda: bench.result(bench.run(command, **environment)))  # noqa: B023 - called in its turn
        expect(trace.info["records"].get("launch", 0) or bench.device == "cpu", "%s: no launch in the trace" % name)
        expect(traced["profiled_kernels"] == plain["profiled_kernels"],
               "%s: the profiler saw %s launches, without convtrace %s; %s"
               % (name, traced["profiled_kernels"], plain["profiled_kernels"], done.err.strip()[-200:]))
        numbers.update({name + "_kernels_profiled_alone": plain["profiled_kernels"],
                        name + "_kernels_profiled_traced": traced["profiled_kernels"],
                        name + "_launches_in_trace": trace.info["records"].get("launch", 0),
                        name + "_said": done.err.strip()[-200:]})
    return numbers
