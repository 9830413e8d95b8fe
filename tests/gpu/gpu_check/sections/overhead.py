"""What tracing costs a training step, beside other tools, as ratios in one run."""
import os
import select
import shutil
import statistics
import subprocess
import time

from .. import processes
from ..bench import Skip, expect
from ..check import Checks
from .driver import EVERY_KERNEL

CHECKS = Checks()
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


class Worker:
    """A training process that works only when asked."""

    def __init__(self, bench, size, name, settings):
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
        if any(key.startswith("CONVTRACE") for key in settings):
            environment.update(LD_PRELOAD=str(bench.tree.preload), CONVTRACE_OUTPUT=str(bench.folder / (name + ".ctrace")))
            if bench.cupti:
                environment["CONVTRACE_CUPTI"] = bench.cupti
        rules = settings.pop("RULES", None)
        if rules:
            settings["CONVTRACE_CONFIG"] = str(bench.folder / (name + ".toml"))
            (bench.folder / (name + ".toml")).write_text(rules)
        self.errors = (bench.folder / (name + ".err")).open("w+")  # a pipe that nobody reads would stop it when full
        self.process = processes.start(
            [bench.python, str(bench.tree.workloads / "training_worker.py"), bench.device, size],
            env={**environment, **settings}, cwd=bench.folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)

    def sample(self, seconds=120):
        """Seconds of one burst; None when the process has ended, or does not answer."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], seconds)[0]:
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
            if time.monotonic() > bench.end - 5:
                if pair < 5:
                    raise Skip("the time was over after %d of %d pairs" % (pair, pairs))
                break
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


CHECKS.add("GPT-like step", seconds=90, alone=True)(step_check("gpt", WAYS))
CHECKS.add("ResNet-like step", seconds=45, alone=True)(step_check("resnet", {
    name: WAYS[name] for name in ("launches", "stats")}))
CHECKS.add("launch-bound step", seconds=45, alone=True)(step_check("launch_bound", {
    name: (WAYS[name][0], None) for name in ("launches", "stats")}))


@CHECKS.add("compute-sanitizer on the same step", seconds=90, alone=True)
def sanitizer(bench):
    """How long a few steps take under compute-sanitizer's memcheck, as a ratio to plain and to traced."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if bench.device == "cpu" or tool is None:
        raise Skip("needs a GPU" if bench.device == "cpu" else "compute-sanitizer is not on the PATH")
    command = bench.workload("models", "--model", "gpt")

    def seconds(run):
        start = time.monotonic()
        bench.result(run())
        return time.monotonic() - start

    plain = seconds(lambda: bench.run(command))
    traced = seconds(lambda: bench.traced(command)[0])
    checked = seconds(lambda: bench.run([tool, "--tool", "memcheck", *command], timeout=600 if bench.full else 120))
    return {"traced_over_plain": traced / plain, "sanitizer_over_plain": checked / plain}
