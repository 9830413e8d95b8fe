"""Reads pytest's outcome of each test, and finds the tests in which two runs of one suite differ."""
import pathlib
import re
import xml.etree.ElementTree as xml


def outcome(case):
    """@return passed, or the outcome with the kind of error, so that a test which fails both ways has to fail alike."""
    for found in case:
        if found.tag in ("failure", "error"):
            kind = re.match(r"[\w.]+", found.get("message") or "")
            return "%s (%s)" % ({"failure": "failed", "error": "error"}[found.tag], kind.group() if kind else "")
        if found.tag == "skipped":
            return "expected failure" if found.get("type") == "pytest.xfail" else "skipped"
    return "passed"


def read(report):
    """@return (class, name) of each test -> outcome. A test that fails and whose tear-down has an error is two cases: both outcomes.
    So is one that is tried again until it passes (the plugin flaky, which reports each try that it overlooks as passed): one outcome."""
    found = {}
    if report.exists():
        for case in xml.parse(report).getroot().iter("testcase"):
            key = case.get("classname"), case.get("name")
            said = found.setdefault(key, [])
            if outcome(case) not in said:
                said.append(outcome(case))
    return {key: ", ".join(said) for key, said in found.items()}


def differences(plain, traced):
    """@return (class, name) -> (outcome plain, outcome traced), of tests where they differ."""
    return {key: (plain.get(key, "not run"), traced.get(key, "not run"))
            for key in plain.keys() | traced.keys() if plain.get(key) != traced.get(key)}


def files(keys, folder):
    """@return the files of these tests, relative to pytest's folder. pytest makes the class of the file's path and names behind it."""
    found = set()
    for classname, name in keys:
        parts = (classname or name).split(".")  # of a file that cannot be collected the class is empty
        for count in range(len(parts), 0, -1):
            path = pathlib.Path(*parts[:count]).with_suffix(".py")
            if (folder / path).exists():
                found.add(str(path))
                break
    return sorted(found)


def split(differing, plain_again, traced_again):
    """Real differences and flaky tests, of what differed: flaky is what both ways agree on when they run once more.

    @return (real, flaky), each (class, name) -> (plain, traced, plain again, traced again)
    """
    real, flaky = {}, {}
    for key, pair in differing.items():
        again = plain_again.get(key, "not run"), traced_again.get(key, "not run")
        (flaky if again[0] == again[1] != "not run" else real)[key] = (*pair, *again)
    return real, flaky


def counts(found):
    """@return 'passed/failed' with errors among the failed, of a run."""
    failed = sum("failed" in text or "error" in text for text in found.values())
    return "%d/%d" % (sum(text == "passed" for text in found.values()), failed)
