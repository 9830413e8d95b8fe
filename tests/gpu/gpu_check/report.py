"""The result: DIR/report.json and DIR/report.md, written anew after every check, so that a run cut off keeps its part."""
import json
import os

STATUSES = ("fail", "pass", "skip")  # a section's status is the first of these that one of its checks has


class Report:
    """facts: device, driver, commit, ...; sections in the order they ran, each with its checks."""

    def __init__(self, folder, facts):
        self.folder = folder
        self.facts = facts
        self.sections = {}
        folder.mkdir(parents=True, exist_ok=True)

    def keep_earlier(self):
        """Takes over the checks of an earlier run of the same commit on the same device with the same versions, but those
        that were skipped."""
        path = self.folder / "report.json"
        if not path.exists():
            return
        earlier = json.loads(path.read_text())
        if any(earlier.get(key) != self.facts[key] for key in ("device", "driver", "commit", "workloads", "versions")):
            return
        for section in earlier["sections"]:
            kept = [check for check in section["checks"] if check["status"] != "skip"]
            if kept:
                self.sections[section["name"]] = kept

    def has(self, section, check):
        return any(one["name"] == check for one in self.sections.get(section, ()))

    def add(self, section, check):
        """check: {name, status, why, numbers, seconds}."""
        checks = self.sections.setdefault(section, [])
        checks[:] = [one for one in checks if one["name"] != check["name"]] + [check]
        self.write()

    def count(self, status):
        return sum(check["status"] == status for checks in self.sections.values() for check in checks)

    def as_json(self):
        return {**self.facts, "sections": [section_json(name, checks) for name, checks in self.sections.items()]}

    def write(self):
        replace(self.folder / "report.json", json.dumps(self.as_json(), indent=1) + "\n")
        replace(self.folder / "report.md", self.as_markdown())

    def as_markdown(self):
        lines = ["# convtrace on %s" % (self.facts["device"] or "no device"), ""]
        lines += ["- %s: %s" % (key, ", ".join("%s %s" % item for item in value.items())
                                if isinstance(value, dict) else value) for key, value in self.facts.items()]
        for name, checks in self.sections.items():
            lines += ["", "## %s: %s" % (name, worst(checks)), "", "| check | status | seconds | what |", "|---|---|---|---|"]
            lines += ["| %s | %s | %.1f | %s |" % (one["name"], one["status"], one["seconds"], cell(one)) for one in checks]
        return "\n".join(lines) + "\n"


def section_json(name, checks):
    """A section as reports promise it: numbers of all checks, the reason of the first that failed or was skipped."""
    status = worst(checks)
    why = next((one["why"] for one in checks if one["status"] == status and one["why"]), "")
    numbers = {"%s.%s" % (one["name"], key): value for one in checks for key, value in one["numbers"].items()}
    return {"name": name, "status": status, "why": why, "numbers": numbers, "checks": checks}


def worst(checks):
    return next(status for status in STATUSES if any(one["status"] == status for one in checks))


def cell(check):
    numbers = ", ".join("%s %s" % (key, "%.4g" % value if isinstance(value, float) else value)
                        for key, value in check["numbers"].items())
    return "; ".join(part for part in (check["why"], numbers) if part).replace("|", "\\|").replace("\n", " ")


def replace(path, text):
    """Writes the whole file or nothing."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    os.replace(new, path)
