"""The results of checks: a file for each device and commit, to which runs of several days and machines add.

    {device, commit, runs: [{date, driver, kernel_module, workloads, versions: {name: version}}],
     checks: {name: {part, result: pass|fail|skip|not run, why, numbers: {name: value}, seconds, run: index into runs}}}

`fail`: convtrace did something wrong or missed a goal. `skip`: this cannot be checked there. `not run`: the time was
over.
"""
import json
import os
import pathlib
import re
import tempfile

from . import archive

RANK = {"fail": 3, "pass": 2, "skip": 1, "not run": 0}


def ran(check):
    return check["result"] in ("pass", "fail")


def new(device, commit):
    return {"device": device, "commit": commit, "runs": [], "checks": {}}


def run_index(results, run):
    if run not in results["runs"]:
        results["runs"].append(run)
    return results["runs"].index(run)


def merge(one, other):
    """Two results of one device and commit, the same in either order: what ran counts more than what did not, a failure
    more than a pass (until there is another commit), and else the later."""
    def weight(source, check):
        return RANK[check["result"]], source["runs"][check["run"]]["date"], json.dumps(check["numbers"], sort_keys=True)

    merged = new(one["device"], one["commit"])
    merged["runs"] = sorted({json.dumps(run, sort_keys=True): run for run in one["runs"] + other["runs"]}.values(),
                            key=lambda run: (run["date"], json.dumps(run, sort_keys=True)))
    for name in sorted({**one["checks"], **other["checks"]}):
        source, check = max(((source, source["checks"][name]) for source in (one, other) if name in source["checks"]),
                            key=lambda pair: weight(*pair))
        merged["checks"][name] = {**check, "run": merged["runs"].index(source["runs"][check["run"]])}
    return merged


def file_name(device, commit):
    return "%s-%s.json" % (re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-"), commit)


def load(folder):
    """The results in a folder or an archive, by file name; other files are left alone."""
    found = {}
    if folder.is_file():
        with tempfile.TemporaryDirectory() as name:
            archive.unpack(folder, pathlib.Path(name))
            return load(pathlib.Path(name))
    for path in sorted(folder.glob("*.json")):
        results = json.loads(path.read_text())
        if isinstance(results, dict) and {"device", "commit", "runs", "checks"} <= set(results):
            found[path.name] = results
    return found


def write(folder, results):
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / file_name(results["device"], results["commit"]), json.dumps(results, indent=1) + "\n")


def replace(path, text):
    """Writes the whole file or nothing: a run that is cut off leaves what was there."""
    made = path.with_name(path.name + ".new")
    made.write_text(text)
    os.replace(made, path)


class Writer:
    """Results of a run under way, in a folder and, where there is one, an archive; written anew with each result."""

    def __init__(self, folder, device, commit, run, archive=None):
        self.folder, self.archive = folder, archive
        self.results = load(folder).get(file_name(device, commit)) or new(device, commit)
        self.run = run_index(self.results, run)

    @property
    def told(self):
        """@return the path of the results."""
        return self.archive.path if self.archive else self.folder / file_name(self.results["device"], self.results["commit"])

    def has_run(self, name):
        """@return whether a run in the same environment has a result of the check."""
        check = self.results["checks"].get(name)
        same = ("driver", "kernel_module", "workloads", "versions")
        return check is not None and ran(check) and all(
            self.results["runs"][check["run"]][key] == self.results["runs"][self.run][key] for key in same)

    def add(self, name, check):
        """check: {part, result, why, numbers, seconds}. It replaces what the folder has of it, unless only that ran."""
        before = self.results["checks"].get(name)
        if before is None or ran(check) or not ran(before):
            self.results["checks"][name] = {**check, "run": self.run}
        write(self.folder, self.results)
        if self.archive:
            self.archive.refresh()
