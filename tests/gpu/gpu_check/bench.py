"""The tools of a check: processes with a time limit, plain, traced or probed, and the traces that they leave."""
import collections
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from . import processes

MOST_KEPT_BYTES = 2 << 20  # of a file of a failed check: what a borrowed machine gives back is limited
NO_DEVICE = 77  # exit code of the programs and workloads that cannot do their job here


class Skip(Exception):
    """This cannot be checked here; the text says why."""


class Failure(Exception):
    """convtrace did something wrong; the text says what."""


class Late(Exception):
    """The time of this check is over."""


def expect(condition, why):
    if not condition:
        raise Failure(why)


# again: runs the same without convtrace; None for what ran so
Done = collections.namedtuple("Done", "code out err again", defaults=(None,))


class Trace:
    """One trace file, read through the programs that users have."""

    def __init__(self, bench, path):
        self.bench, self.path = bench, path

    def _json(self, command, codes=(0,)):
        with self.bench.start([str(self.bench.tree.convtrace), command, "--json", str(self.path)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate()
        expect(process.returncode in codes,
               "convtrace %s ended with %d: %s" % (command, process.returncode, err[-300:]))
        return [json.loads(line) for line in out.splitlines()]

    @property
    def info(self):
        return self._json("info", codes=(0, 3))[0]

    @functools.cached_property
    def _shown(self):
        return self._json("show", codes=(0, 3))

    def records(self, kind=None):
        return [r for r in self._shown if kind in (None, r["record"])]

    @property
    def findings(self):
        return self._json("findings", codes=(0, 3, 4))

    def check_clean(self, closed=True):
        """Complete, nothing lost, nothing found, no complaint."""
        info = self.info
        expect(not closed or info["state"] == "complete", "the trace is %s" % info["state"])
        # Beside other checks a preparation may take longer than the observer waits for it; then it counts.
        lost = dict(info["lost"])
        unready = lost.pop("stream not safe to use", 0)
        expect(not lost, "records were lost: %s" % lost)
        expect(unready <= info["records"].get("stats", 0), "%d values were not computed, %d were" % (
            unready, info["records"].get("stats", 0)))
        findings = self.findings
        expect(not findings, "a finding in a correct program: %s" % json.dumps(findings[:1])[:400])
        complaints = [r.get("message", "") for r in self.records("diagnostic") if r["level"] != "info"]
        expect(not complaints, "a diagnostic: %s" % complaints[:2])
        return info


class Bench:
    """One check's surroundings: a folder of its own, and how to run things."""

    def __init__(self, tree, python, device, is_fake, out=None):
        self.tree, self.python, self.device, self.is_fake = tree, python, device, is_fake
        self.out = out  # folder of what a check leaves beside its numbers
        self.numbers = {}  # what a check has measured, kept when it fails
        self.noted = lambda numbers: None  # called with all of them when there are more
        self.late = None  # why the check was stopped
        self.children = []
        self.cupti = None
        self.driver_trouble = None  # why there is no device at all
        self.torch_trouble = None  # why PyTorch cannot use the device
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu-check-"))

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, name):
        """Copies what the check left, except large files, to `failed/NAME` in the folder of the results."""
        kept = self.out / "failed" / re.sub(r"[^A-Za-z0-9]+", "_", name)
        shutil.rmtree(kept, ignore_errors=True)  # of an earlier run
        for path in self.folder.rglob("*"):
            try:  # a program that was left may remove its files
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_KEPT_BYTES:
                    target = kept / path.relative_to(self.folder)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)
            except OSError as error:
                print("gpu-check: %s is not kept: %s" % (path.name, error), file=sys.stderr)

    def leave(self, name, text):
        """A file beside the results."""
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def start(self, command, **options):
        """A process that ends with the time of the check."""
        child = processes.start(command, **options)
        self.children.append(child)
        if self.late:
            processes.kill(child)
            child.wait()
            raise Late(self.late)
        return child

    def stop(self, why):
        """Kills the running processes and prevents new ones. Called from another thread."""
        self.late = why
        for child in list(self.children):
            if child.returncode is None:
                processes.kill(child)

    def _environment(self, extra):
        kept = {k: v for k, v in os.environ.items()
                if not k.startswith("CONVTRACE") and k not in ("LD_PRELOAD", "CUDA_INJECTION64_PATH")}
        return {**kept, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **{k: str(v) for k, v in extra.items()}}

    def run(self, command, timeout=120, **environment):
        """Runs to the end or kills the whole group: a hang is a failure, not a stuck check."""
        with self.start([str(part) for part in command], env=self._environment(environment), cwd=self.folder,
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = "", ""
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                processes.kill(process)
                out, err = process.communicate()
                raise Failure("%s did not end within %d s" % (pathlib.Path(command[0]).name, timeout)) from None
            finally:
                with (self.folder / "processes.txt").open("a") as file:
                    print("$", *command, "#", environment, file=file)
                    print("exit code %s\n%s\n%s" % (process.returncode, out[-4000:], err[-20000:]), file=file)
        return Done(process.returncode, out, err)

    def traced(self, command, name="run", timeout=120, rules=None, environment=None, **settings):
        """Runs under the preload. Settings without their prefix: mode="hash". @return (Done, Trace)."""
        path = self.folder / (name + ".ctrace")
        given = environment or {}
        environment = {**given, "LD_PRELOAD": self.tree.preload, "CONVTRACE_OUTPUT": path,
                       "CONVTRACE_OVERWRITE": "1"}
        if self.cupti:
            environment["CONVTRACE_CUPTI"] = self.cupti
        if rules is not None:
            (self.folder / "rules.toml").write_text(rules)
            environment["CONVTRACE_CONFIG"] = self.folder / "rules.toml"
        environment.update({"CONVTRACE_" + key.upper(): value for key, value in settings.items()})
        return self._instrumented(command, timeout, environment, given), Trace(self, path)

    def probed(self, command, callbacks, timeout=120, **settings):
        """Runs under the probe of callbacks alone. @return (Done, what the probe wrote)."""
        out = self.folder / "probe.json"
        out.unlink(missing_ok=True)
        environment = {"CUDA_INJECTION64_PATH": self.tree.probe, "GPU_PROBE_OUT": out, "GPU_PROBE_SET": callbacks, **settings}
        if self.cupti:
            environment["GPU_PROBE_CUPTI"] = self.cupti
        done = self._instrumented(command, timeout, environment, {})
        return done, json.loads(out.read_text()) if out.exists() else None

    def logged(self, command, path, timeout=120):
        """Runs with all that CUPTI calls written to `path` (tests/gpu/cupti_log). @return Done."""
        environment = {"CUDA_INJECTION64_PATH": self.tree.cupti_log, "CUPTI_LOG_OUT": path}
        if self.cupti:
            environment["CUPTI_LOG_CUPTI"] = self.cupti
        return self._instrumented(command, timeout, environment, {})

    def _instrumented(self, command, timeout, environment, given):
        again = functools.partial(self.run, command, timeout, **given)
        return self.run(command, timeout, **environment)._replace(again=again)

    def native(self, program, *arguments):
        """The command of a program for the driver; Skip where there is no device."""
        if self.driver_trouble:
            raise Skip(self.driver_trouble)
        return [program, *arguments]

    def program(self, done):
        """The JSON that a program of ours printed."""
        if done.code == NO_DEVICE:
            raise Skip(done.err.strip())
        expect(done.code == 0, "ended with %d: %s" % (done.code, (done.err or done.out).strip()[-400:]))
        return json.loads(done.out)

    def workload(self, name, *arguments):
        """The command of a PyTorch workload; Skip where PyTorch has no such device."""
        if self.torch_trouble:
            raise Skip(self.torch_trouble)
        return self._script(name, arguments)

    def observed(self, name, *arguments):
        """The command of a program of the observer's tests."""
        if self.torch_trouble:
            raise Skip(self.torch_trouble)
        return [self.python, self.tree.observed / (name + ".py"), *arguments, self.device]

    def other_framework(self, name):
        """The command of a program without PyTorch."""
        if self.device == "cpu" or self.is_fake or self.driver_trouble:
            raise Skip("needs a GPU")
        return self._script("other_frameworks", ("--framework", name))

    def without_torch(self, name, *arguments):
        """The command of a workload that needs a device, and no PyTorch."""
        if self.device == "cpu" or self.driver_trouble:
            raise Skip(self.driver_trouble or "needs a GPU")
        return self._script(name, arguments)

    def _script(self, name, arguments):
        return [self.python, self.tree.workloads / (name + ".py"), *arguments, "--device", self.device,
                "--out", self.folder / "result.json"]

    def result(self, done):
        """@return the result that a workload wrote."""
        self.succeeded(done)
        return json.loads((self.folder / "result.json").read_text())

    def succeeded(self, done):
        """Raises Skip if a program reported that it cannot run here, or fails without convtrace, too."""
        if done.code == 0:
            return
        said = (done.err.strip() or done.out.strip())[-600:]
        plain = done.again().code if done.again else done.code
        if done.code == plain == NO_DEVICE:
            raise Skip(said.split("\n")[-1])
        if plain != 0:
            raise Skip("ends with %d without convtrace, too: %s" % (plain, said))
        raise Failure("ended with %d, without convtrace with 0: %s" % (done.code, said))

    def expect_same(self, plain, traced, again):
        """Results with and without convtrace; what does not repeat its own (again() makes it) cannot be held to that."""
        if plain["digest"] != traced["digest"]:
            expect(again()["digest"] != plain["digest"], "the results are other ones under convtrace")
            self.note({"same_bits": "the program does not repeat its own"})

    def note(self, numbers):
        """Keeps numbers, whatever comes. @return all that is kept."""
        self.numbers.update(numbers)
        self.noted(self.numbers)
        return self.numbers

    def judge(self, what, value, limit, at_least=False):
        """A number against its goal; times of a fake device or of the CPU are not judged."""
        if self.is_fake or self.device == "cpu":
            return
        good = value >= limit if at_least else value <= limit
        expect(good, "%s is %.4g, goal %s %g" % (what, value, ">=" if at_least else "<=", limit))
