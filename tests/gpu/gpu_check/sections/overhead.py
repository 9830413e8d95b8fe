"""What tracing costs a training step, beside other tools, as ratios in one run."""
import os
import shutil
import signal
import statistics
import subprocess
import time

from ..bench import Skip, expect
from ..check import Checks
from .driver import EVERY_KERNEL

CHECKS = Checks()
AT_ONCE = False
# way: settings, goal as a ratio to the plain step on an H100; None: shown, not judged
WAYS = {
    "launches": ({"CONVTRACE_MODE": "launches"}, 1.02),
    "stats": ({"CONVTRACE_MODE": "stats"}, 1.05),
    "every_kernel": ({"CONVTRACE_MODE": "stats", "RULES": EVERY_KERNEL}, 1.25),
    "every50": ({"CONVTRACE_MODE": "stats", "CONVTRACE_STEPS": "0-100000,every=50"}, 1.01),
    "profiler": ({"WORKER_TOOL": "profiler"}, None),
    "debug_mode": ({"WORKER_TOOL": "debug_mode"}, None),
}


class Worker:
    """A training process that works only when asked."""

    def __init__(self, bench, size, name, settings):
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("CONVTRACE")}
        if any(key.startswith("CONVTRACE") for key in settings):
            environment.update(LD_PRELOAD=str(bench.tree.preload), CONVTRACE_OUTPUT=str(bench.folder / (name + ".ctrace")))
        rules = settings.pop("RULES", None)
        if rules:
            settings["CONVTRACE_CONFIG"] = str(bench.folder / (name + ".toml"))
            (bench.folder / (name + ".toml")).write_text(rules)
        self.process = subprocess.Popen(
            [bench.python, str(bench.tree.workloads / "training_worker.py"), bench.device, size],
            env={**environment, **settings}, cwd=bench.folder, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def sample(self):
        """Seconds of one burst; None when the process has ended."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline() or "nan")
        except (BrokenPipeError, ValueError):
            return None

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.communicate()


def ratios(bench, size, ways, pairs):
    """Median over pairs of (burst of a way / burst of the plain step next to it). Bursts alternate, so drift hits all."""
    plain = Worker(bench, size, "plain", {})
    workers = {name: Worker(bench, size, name, dict(settings)) for name, (settings, _) in ways.items()}
    try:
        for worker in [plain, *workers.values()] * 2:
            worker.sample()
        found, base = {name: [] for name in ways}, []
        for pair in range(pairs):
            order = list(workers.items())
            base.append(plain.sample())
            for name, worker in order if pair % 2 == 0 else order[::-1]:
                found[name].append(worker.sample())
    finally:
        for worker in [plain, *workers.values()]:
            worker.close()
    expect(all(base), "the plain step ended early")
    for name, seconds in found.items():
        if ways[name][1] is not None:
            expect(all(seconds), "the step traced with %s ended early" % name)
    return {name: statistics.median(s / b for s, b in zip(seconds, base)) for name, seconds in found.items() if all(seconds)}


def step_check(size, ways):
    def check(bench):
        if bench.torch_trouble:
            raise Skip(bench.torch_trouble)
        real = "tiny" if bench.device == "cpu" else size
        numbers = ratios(bench, real, ways, 15 if bench.device == "cuda" else 3)
        for name, (_, goal) in ways.items():
            if goal is not None:
                bench.judge("step under " + name, numbers[name], goal)
        return numbers
    return check


CHECKS.add("GPT-like step", seconds=90)(step_check("gpt", WAYS))
CHECKS.add("ResNet-like step", seconds=60)(step_check("resnet", {
    name: WAYS[name] for name in ("launches", "stats")}))
CHECKS.add("launch-bound step", seconds=60)(step_check("launch_bound", {
    name: (WAYS[name][0], None) for name in ("launches", "stats")}))


@CHECKS.add("compute-sanitizer on the same step", seconds=90)
def sanitizer(bench):
    """How long a few steps take under compute-sanitizer's memcheck, as a ratio to plain and to traced."""
    tool = shutil.which("compute-sanitizer")
    if bench.device == "cpu" or tool is None:
        raise Skip("needs a GPU" if bench.device == "cpu" else "compute-sanitizer is not on the PATH")
    command = bench.workload("models", "--model", "gpt")

    def seconds(run):
        start = time.monotonic()
        bench.result(run())
        return time.monotonic() - start

    plain = seconds(lambda: bench.run(command))
    traced = seconds(lambda: bench.traced(command)[0])
    checked = seconds(lambda: bench.run([tool, "--tool", "memcheck", *command], timeout=85))
    return {"traced_over_plain": traced / plain, "sanitizer_over_plain": checked / plain}
