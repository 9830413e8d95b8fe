"""The cost of tracing for a launch and a training step, as ratios in one run, and the time of our kernels inside a step."""
import json
import os
import select
import statistics
import subprocess

from .. import processes
from ..bench import Skip, Trace, expect
from ..check import check
from .pytorch import EVERY_KERNEL
from .ways import OUTPUT_RULE

# way: settings, goal as a ratio to the plain f32 step on an H100
WAYS = {
    "launches": ({"CONVTRACE_MODE": "launches"}, 1.02),
    "stats": ({"CONVTRACE_MODE": "stats"}, 1.05),
    "hash": ({"CONVTRACE_MODE": "hash"}, None),
    "every_kernel": ({"CONVTRACE_MODE": "stats", "RULES": EVERY_KERNEL}, 1.25),
    "every50": ({"CONVTRACE_MODE": "stats", "CONVTRACE_STEPS": "0-100000,every=50"}, 1.01),
}
RARE = ("every50",)  # what costs something in few of its bursts
BURST = 5  # steps, as training_worker.py makes them
PAIRS = 15


@check("launch cost", part=6, alone=True)
def launch_cost(bench):
    """A launch of eight parameters: bare, under CUPTI in several ways, recorded, with statistics of its output."""
    command = bench.native(bench.tree.launches, "--launches", "20000")
    wide = [*command, "--wide", "--launches", "2000"]
    prepared = [*command, "--pause", "1000" if not bench.is_fake else "300"]
    rounds = 1 if bench.is_fake else 3

    def plain(what=command):
        return bench.program(bench.run(what))["ns_per_launch"]

    def probed(callbacks):
        return lambda: bench.program(bench.probed(command, callbacks)[0])["ns_per_launch"]

    def traced(what=command, **settings):
        return lambda: bench.program(bench.traced(what, **settings)[0])["ns_per_launch"]

    ways = {"bare": plain, **{"cupti_" + callbacks: probed(callbacks)
                              for callbacks in ("subscribed", "launch", "list", "driver", "all")},
            "off": traced(mode="off"), "recorded": traced(mode="launches"),
            "stacks": traced(mode="launches", stacks="all"), "sampled": traced(prepared, rules=OUTPUT_RULE),
            "wide_bare": lambda: plain(wide), "wide_recorded": traced(wide, mode="launches")}
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


@check("launch cost under PyTorch", part=6, alone=True)
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


class Worker:
    """A training process that works only when asked. @param settings  None: without convtrace."""

    def __init__(self, bench, size, name, settings):
        self.bench, self.name, self.trace = bench, name, None
        environment = {k: v for k, v in os.environ.items()
                       if k not in ("LD_PRELOAD", "CUDA_INJECTION64_PATH") and not k.startswith("CONVTRACE")}
        if settings is not None:
            self.trace = Trace(bench, bench.folder / (name + ".ctrace"))
            environment.update({k: v for k, v in settings.items() if k != "RULES"},
                               LD_PRELOAD=str(bench.tree.preload), CONVTRACE_OUTPUT=str(self.trace.path))
            if bench.cupti:
                environment["CONVTRACE_CUPTI"] = bench.cupti
            if "RULES" in settings:
                environment["CONVTRACE_CONFIG"] = str(bench.folder / (name + ".toml"))
                (bench.folder / (name + ".toml")).write_text(settings["RULES"])
        self.errors = (bench.folder / (name + ".err")).open("w+")  # a pipe that nobody reads would stop it when full
        self.process = bench.start(
            [bench.python, str(bench.tree.workloads / "training_worker.py"), bench.device, size], env=environment, cwd=bench.folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)

    def sample(self):
        """Seconds of one burst."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], 180)[0]:
                processes.kill(self.process)
            return float(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self.errors.seek(0)
            why = "the step %s ended early: %s" % (self.name, self.errors.read().strip()[-300:])
            if self.trace is None:
                raise Skip(why) from None
            expect(False, why)

    def end(self):
        """No more bursts are wanted."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def close(self):
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            processes.kill(self.process)
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def ratios(bench, size, ways, pairs):
    """Measures for each way the ratio of its bursts' time to that of the adjacent plain ones: the median of the pairs, or the
    ratio of the totals for rare events. Bursts alternate, so that drift affects all. Also counts recorded and lost values."""
    plain, workers = Worker(bench, size, "without convtrace", None), {}
    try:
        for name in ways:
            workers[name] = Worker(bench, size, name, WAYS[name][0])
        for worker in [plain, *workers.values()] * 2:
            worker.sample()
        found, base = {name: [] for name in ways}, []
        for pair in range(pairs):
            base.append(plain.sample())
            for name, worker in list(workers.items())[::1 if pair % 2 == 0 else -1]:
                found[name].append(worker.sample())
            bench.note({"plain_ms": statistics.median(base) * 1e3 / BURST, "pairs": len(base), **{
                name: sum(seconds) / sum(base) if name in RARE else statistics.median(s / b for s, b in zip(seconds, base))
                for name, seconds in found.items()}})
    finally:
        for worker in [plain, *workers.values()]:
            worker.end()
        for worker in [plain, *workers.values()]:
            worker.close()
    for name, worker in workers.items():
        info = worker.trace.info
        bench.note({name + "_values": info["records"].get("stats", 0), name + "_lost": sum(info["lost"].values())})
    return bench.numbers


def real_size(bench, size):
    if bench.torch_trouble:
        raise Skip(bench.torch_trouble)
    return "+".join(["tiny", *size.split("+")[1:]]) if bench.device == "cpu" else size


def step_check(size, ways, judged=True):
    def check(bench):
        numbers = ratios(bench, real_size(bench, size), ways, PAIRS if bench.device == "cuda" else 3)
        for name in ways if judged else ():
            if WAYS[name][1] is not None:
                bench.judge("step under " + name, numbers[name], WAYS[name][1])
    return check


for _name, _size, _ways, _judged in (
        ("GPT-like step", "gpt", tuple(WAYS), True), ("GPT-like step in bf16", "gpt+bf16", ("launches", "stats", "hash"), False),
        ("GPT-like step as a graph", "gpt+graph", ("launches", "stats"), False),
        ("GPT-like step in bf16 as a graph", "gpt+bf16+graph", ("launches", "stats"), False),
        ("ResNet-like step", "resnet", ("launches", "stats"), True), ("launch-bound step", "launch_bound", ("launches", "stats"), False)):
    check(_name, part=6, alone=True)(step_check(_size, _ways, _judged))


def kernels_check(size):
    def check(bench):
        """torch.profiler's durations of each kernel of convtrace in a step, and the gaps around it; all rows in steps/SIZE.json."""
        command = bench.workload("step_kernels", "--size", real_size(bench, size))
        bench.note({"plain_ms": bench.result(bench.run(command))["step_ms"]})
        done, trace = bench.traced(command, mode="stats")
        step = bench.result(done)
        bench.leave("steps/%s.json" % size, json.dumps(step, indent=1))
        ours = step["ours"]
        bench.note({"stats_ms": step["step_ms"], "ours_ms": sum(row["sum_us"] for row in ours) / 1e3,
                    "launches": sum(row["launches"] for row in ours), "values": trace.info["records"].get("stats", 0)})
        for kernel in sorted({row["kernel"] for row in ours}):
            rows = [row for row in ours if row["kernel"] == kernel]
            launches = sum(row["launches"] for row in rows)
            bench.note({kernel + "_us": sum(row["sum_us"] for row in rows) / launches,
                        kernel + "_gap_us": sum(row["gap_us"] * row["launches"] for row in rows) / launches})
        expect(ours or bench.device == "cpu", "no kernel of convtrace ran in the profiled step")
    return check


check("kernels in an f32 step", part=6, alone=True)(kernels_check("gpt"))
check("kernels in a bf16 step", part=6, alone=True)(kernels_check("gpt+bf16"))
