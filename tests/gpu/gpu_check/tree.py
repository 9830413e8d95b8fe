"""Finds the files under test: in an installed tree, or in a checkout and its build."""
import json
import os
import pathlib
import subprocess


class Tree:
    """The paths of one tree. `missing`: the names of missing files."""

    def __init__(self, root):
        package = root / "share" / "convtrace" / "gpu-check"
        if package.is_dir():
            self.build, self.scripts, self.observed = root, package, package / "observed"
            programs = package / "bin"
        else:
            self.build = pathlib.Path(os.environ.get("CONVTRACE_BUILD") or root / "build" / "release").resolve()
            self.scripts, self.observed = root / "tests" / "gpu", root / "tests" / "python" / "programs"
            programs = self.build / "gpu-check" / "bin"
        self.root = root
        self.workloads = self.scripts / "workloads"
        self.preload = self.build / "lib" / "libconvtrace.so"
        self.convtrace = self.build / "bin" / "convtrace"
        self.diff = self.build / "bin" / "convtrace-diff"
        self.launches = programs / "gpu_launches"
        self.alias = programs / "gpu_alias"
        self.operands = programs / "gpu_operands"
        self.outputs = programs / "gpu_outputs"
        self.preparation = programs / "gpu_preparation"
        self.stats_bits = programs / "gpu_stats_bits"
        self.stats_bench = programs / "gpu_stats_bench"
        self.runtime = programs / "gpu_runtime"
        self.cupti_log = programs / "libconvtrace_cupti_log.so"
        self.probe = programs / "libconvtrace_gpu_probe.so"

    @property
    def missing(self):
        needed = (self.preload, self.convtrace, self.diff, self.launches, self.alias, self.operands, self.outputs,
                  self.preparation, self.stats_bits, self.cupti_log, self.probe)
        return [str(path) for path in needed if not path.exists()]

    @property
    def commit(self):
        """The commit that the tree was made of, "unknown" where nothing says."""
        about = self.root / "share" / "convtrace" / "build.json"
        if about.exists():
            return json.loads(about.read_text()).get("commit", "unknown")
        done = subprocess.run(["git", "-C", str(self.root), "describe", "--always", "--dirty", "--abbrev=12"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return done.stdout.strip() or "unknown"
