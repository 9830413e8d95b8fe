"""Statistics on the device: the CPU's to the last bit, PyTorch's within rounding, at memory speed."""
import csv
import math
import shutil
import statistics

from ..bench import Skip, expect
from ..check import check

MODELS = ("dtypes", "transformer", "cnn", "lstm", "checkpointed", "mixed", "custom")


@check("bits", part=4)
def bits(bench):
    """Every type, size, misalignment and special value: equal to the CPU's, also a hundred times beside other work; by the
    variant for slow f64, within 1e-9."""
    command = bench.native(bench.tree.stats_bits, *([] if bench.is_fake else ["--large"]))
    done = bench.run(command, timeout=600)
    said = bench.program(done._replace(code=0) if done.code == 1 and done.out else done)
    expect(said["unequal"] == 0, "%d of %d differ; the first: %s" % (said["unequal"], said["compared"], said["first_unequal"]))
    return {"tensors": said["compared"]}


@check("outputs", part=4)
def outputs(bench):
    """The outputs of each kernel are found without a rule, completely and without others, at every launch."""
    done, trace = bench.traced(bench.native(bench.tree.outputs), all_kernels=1)
    said = bench.program(done)
    trace.check_clean()
    found = {}
    for record in trace.records("stats"):
        found.setdefault((record["kernel"], record["slot"]), []).append(record)
    wanted = {(kernel, slot) for kernel, slots in said["outputs"].items() for slot in slots}
    expect(set(found) == wanted, "found %s, written are %s" % (sorted(found), sorted(wanted)))
    for (kernel, slot), records in found.items():
        expect(len(records) == said["launches"], "%s of %s: %d values of %d launches" % (slot, kernel, len(records), said["launches"]))
        expect(all(r["looks"] == r["changes"] for r in records), "%s of %s: a look saw no change" % (slot, kernel))
    return {"values": sum(map(len, found.values()))}


@check("against torch in float64", part=4)
def against_torch(bench):
    """Outputs, gradients and parameters of real models: what the trace says is what torch computes."""
    numbers = {}
    for model in MODELS:
        done, trace = bench.traced(bench.workload(*(("dtypes",) if model == "dtypes" else ("kept", "--model", model))))
        kept = bench.result(done)["kept"]
        trace.check_clean()
        values = {}
        for r in trace.records("stats"):
            if r["op"] is None:
                values.setdefault((r["step"], r["phase"], r["scope"], r["call"], r["slot"]), []).append(r)
        for one in kept:
            found = values.get(tuple(one["place"]), [])
            expect(len(found) == 1, "%s: %d records of %s" % (model, len(found), one["place"]))
            compare(one, found[0])
        numbers[model + "_tensors"] = len(kept)
    return numbers


def compare(kept, record):
    """Every field against torch's own value in float64; short floats are summed in float32 within a chunk."""
    relative, absolute = (1e-7, 1e-7) if record["variant"] == 2 else (1e-9, 1e-12)
    for field, value in kept["values"].items():
        slack = {"mean": kept["values"]["amax"], "std": kept["values"]["amax"], "sum": kept["values"]["l1"]}.get(field, 0)
        expect(math.isclose(float(record[field]), value, rel_tol=relative, abs_tol=absolute * slack),
               "%s of %s is %s, torch says %r" % (field, kept["place"], record[field], value))


@check("speed", part=7, alone=True)
def speed(bench):
    """Against cub::DeviceReduce::Sum, copies and an empty kernel, in one run."""
    if not bench.tree.stats_bench.exists():
        raise Skip("gpu_stats_bench is not in this tree")
    if bench.is_fake:
        raise Skip("the CUDA runtime does not work on the fake driver")
    done = bench.run(bench.native(bench.tree.stats_bench), timeout=300)
    rows = bench.program(done)
    missed = [row for row in rows if row.get("ok") is False]
    bench.note({row["name"]: row["value"] for row in rows if row.get("value") is not None})
    expect(not missed, "goals missed: " + ", ".join("%s %.4g (%s)" % (r["name"], r["value"], r["goal"]) for r in missed))


METRICS = (  # of Nsight Compute: issue, the pipes of conversions and of f64, memory; names not yet tried on a GH100
    "sm__inst_issued.avg.pct_of_peak_sustained_active", "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed")


@check("pipes of the statistics kernel", part=7, alone=True)
def pipes(bench):
    """Measures by Nsight Compute which pipes keep the kernel from memory speed."""
    tool = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if tool is None or bench.is_fake or not bench.tree.stats_bench.exists():
        raise Skip("needs a GPU, ncu on the PATH and gpu_stats_bench")
    command = bench.native(bench.tree.stats_bench, "--rate")
    done = bench.run([tool, "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS), "--kernel-name", "convtrace_stats",
                      "--launch-count", "3", *command], timeout=200)
    rows = list(csv.DictReader(line for line in done.out.splitlines() if line.startswith('"')))
    if done.code != 0 or not rows:
        raise Skip("ncu ended with %d: %s" % (done.code, (done.err or done.out).strip()[-300:]))
    values = {}
    for row in rows:
        if row["Metric Value"] == "n/a":  # this GPU has none of that name
            bench.note({row["Metric Name"]: "n/a"})
        else:
            values.setdefault(row["Metric Name"], []).append(float(row["Metric Value"].replace(",", "")))
    if not values:
        raise Skip("ncu knows none of these metrics here")
    return {metric: statistics.median(found) for metric, found in values.items()}
