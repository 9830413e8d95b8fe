"""Runs the commands on a suite's traces, and compares their findings with the known ones."""
import collections
import dataclasses
import fnmatch
import json
import re
import subprocess

import known

COMMAND_LIMIT_S = 900


@dataclasses.dataclass
class Read:
    traces: int = 0
    size: int = 0                  # bytes
    values: int = 0
    unclosed: int = 0              # of processes that were killed
    broken: list = dataclasses.field(default_factory=list)
    errors: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # (command, id, place) -> times
    example: dict = dataclasses.field(default_factory=dict)                               # its text
    messages: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    off: list = dataclasses.field(default_factory=list)  # lines of the log that say that an observation failed or the observer ended

    @property
    def alive(self):
        return not self.off and self.values > 0


def said(convtrace, *words):
    try:
        done = subprocess.run([str(word) for word in (convtrace, *words)], capture_output=True, text=True, timeout=COMMAND_LIMIT_S)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


def place(finding):
    return " ".join(str(finding[key]) for key in ("scope", "op", "kernel", "slot") if finding.get(key))


def look(convtrace, trace, read):
    code, text = said(convtrace, "verify", "--json", trace)
    if code not in (0, 3) or not text or json.loads(text)["problem_count"]:
        read.broken.append("verify %s: %s %s" % (trace.name, code, text[:300]))
        return
    read.unclosed += json.loads(text)["state"] != "complete"
    code, text = said(convtrace, "check", "--json", "-", trace)
    if code not in (0, 3, 4):
        read.broken.append("check %s: %s" % (trace.name, code))
        return
    report = json.JSONDecoder().raw_decode(text)[0]  # the report for people follows
    read.values += report["values"]
    for finding in report["findings"]:
        if finding["level"] == "error":
            note(read, "check", finding["id"], place(finding), finding["times"], "\n".join([finding["text"], *finding["evidence"]]))
    code, text = said(convtrace, "findings", "--json", trace)
    if code not in (0, 3, 4):
        read.broken.append("findings %s: %s" % (trace.name, code))
        return
    for line in text.splitlines():
        finding = json.loads(line)
        if finding.get("level") == "error" and not finding.get("suppressed"):
            note(read, "findings", finding["kind"], place(finding), 1, finding["message"])


def note(read, command, kind, where, times, text):
    read.errors[command, kind, where] += times
    read.example.setdefault((command, kind, where), text)


def read(convtrace, traces, log):
    found = Read()
    for trace in sorted(traces.glob("*.ctrace")):
        found.traces += 1
        found.size += trace.stat().st_size
        look(convtrace, trace, found)
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        number = re.search(r"\bCT-\d{4}\b", line)
        if number:
            found.messages[number.group()] += 1
            if number.group() in ("CT-1301", "CT-1302"):
                found.off.append(line)
    return found


def verdict(suite, command, kind, where):
    """@return true, false, or unknown, with the reason."""
    for entry in known.KNOWN:
        if (entry.suite, entry.command, entry.kind) == (suite, command, kind) and fnmatch.fnmatchcase(where, entry.place):
            return ("true" if entry.true else "false"), entry.reason
    return "unknown", "known.py does not have it"
