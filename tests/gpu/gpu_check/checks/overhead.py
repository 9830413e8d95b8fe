"""What tracing costs a launch, and a training step beside other tools, as ratios in one run."""
import os
import select
import shutil
import statistics
import subprocess

from .. import processes
from ..bench import Skip, expect
from ..check import check
from .pytorch import EVERY_KERNEL
from .ways import OUTPUT_RULE

# way: settings, goal as a ratio to the plain step on an H100; None: shown, not judged
WAYS = {
    "launches": ({"CONVTRACE_MODE": "launches"}, 1.02),
    "stats": ({"CONVTRACE_MODE": "stats"}, 1.05),
    "every_kernel": ({"CONVTRACE_MODE": "stats", "RULES": EVERY_KERNEL}, 1.25),
    "every50": ({"CONVTRACE_MODE": "stats", "CONVTRACE_STEPS": "0-100000,every=50"}, 1.01),
    "profiler": ({"WORKER_TOOL": "profiler"}, None),
    "debug_mode": ({"WORKER_TOOL": "debug_mode"}, None),
}
RARE = ("every50",)  # what costs something in few of its bursts
OURS = [name for name, (settings, _) in WAYS.items() if "CONVTRACE_MODE" in settings]
BURST = 5  # steps, as training_worker.py makes them


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
    """A training process that works only when asked."""

    def __init__(self, bench, size, name, settings):
        environment = {k: v for k, v in os.environ.items()
                       if k not in ("LD_PRELOAD", "CUDA_INJECTION64_PATH") and not k.startswith("CONVTRACE")}
        if any(key.startswith("CONVTRACE") for key in settings):
            environment.update(LD_PRELOAD=str(bench.tree.preload), CONVTRACE_OUTPUT=str(bench.folder / (name + ".ctrace")))
            if bench.cupti:
                environment["CONVTRACE_CUPTI"] = bench.cupti
        tool, rules = settings.pop("TOOL", None), settings.pop("RULES", None)
        # What the tool says must not get among the answers.
        around = [tool, "--tool", "memcheck", "--log-file", str(bench.folder / "sanitizer.log")] if tool else []
        if rules:
            settings["CONVTRACE_CONFIG"] = str(bench.folder / (name + ".toml"))
            (bench.folder / (name + ".toml")).write_text(rules)
        self.errors = (bench.folder / (name + ".err")).open("w+")  # a pipe that nobody reads would stop it when full
        self.process = processes.start(
            [*around, bench.python, str(bench.tree.workloads / "training_worker.py"), bench.device, size],
            env={**environment, **settings}, cwd=bench.folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)

    def sample(self):
        """Seconds of one burst; None when the process has ended, or does not answer."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], 180)[0]:
                processes.kill(self.process)
                return None
            return float(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            return None

    @property
    def said(self):
        self.errors.seek(0)
        return self.errors.read().strip()[-300:]

    def close(self):
        processes.kill(self.process)
        self.process.communicate()
        self.errors.close()


def ratios(bench, size, ways, pairs):
    """For each way, time of its bursts over that of the plain ones next to them: the median of the pairs; of what is rare in
    a run, all over all. Bursts alternate, so drift hits all. Text: why a way that is not judged did not run."""
    plain = Worker(bench, size, "plain", {})
    workers = {name: Worker(bench, size, name, dict(settings)) for name, (settings, _) in ways.items()}
    try:
        for worker in [plain, *workers.values()] * 2:
            worker.sample()
        found, base = {name: [] for name in ways}, []
        for pair in range(pairs):
            base.append(plain.sample())
            order = [(name, worker) for name, worker in workers.items() if None not in found[name]]
            for name, worker in order if pair % 2 == 0 else order[::-1]:
                found[name].append(worker.sample())
        if None in base:
            raise Skip("the plain step ended early: " + plain.said)
        numbers = {"plain_ms": statistics.median(base) * 1e3 / BURST, "pairs": len(base)}
        for name, seconds in found.items():
            if None not in seconds:
                numbers[name] = (sum(seconds) / sum(base) if name in RARE
                                 else statistics.median(s / b for s, b in zip(seconds, base)))
            else:
                expect(ways[name][1] is None and name not in OURS, "the step under %s ended early: %s" % (name, workers[name].said))
                numbers[name] = "did not run: " + workers[name].said
        return numbers
    finally:
        for worker in [plain, *workers.values()]:
            worker.close()


def step_check(size, ways):
    def check(bench):
        if bench.torch_trouble:
            raise Skip(bench.torch_trouble)
        real = "tiny" if bench.device == "cpu" else size
        numbers = bench.note(ratios(bench, real, ways, 15 if bench.device == "cuda" else 3))
        for name, (_, goal) in ways.items():
            if goal is not None:
                bench.judge("step under " + name, numbers[name], goal)
        return numbers
    return check


check("GPT-like step", part=6, alone=True)(step_check("gpt", WAYS))
check("ResNet-like step", part=6, alone=True)(step_check("resnet", {
    name: WAYS[name] for name in ("launches", "stats")}))
check("launch-bound step", part=6, alone=True)(step_check("launch_bound", {
    name: (WAYS[name][0], None) for name in ("launches", "stats")}))


@check("compute-sanitizer on the same step", part=7, alone=True)
def sanitizer(bench):
    """The GPT-like step under compute-sanitizer's memcheck, beside plain and traced ones."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if bench.torch_trouble or bench.device == "cpu" or tool is None:
        raise Skip(bench.torch_trouble or "needs a GPU and compute-sanitizer on the PATH")
    ways = {"stats": (WAYS["stats"][0], None), "sanitizer": ({"TOOL": tool}, None)}
    return ratios(bench, "gpt", ways, 1)
