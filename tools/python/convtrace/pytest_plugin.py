"""A plugin for pytest: a marked test runs traced, and fails if its trace diverges from a baseline.

    @pytest.mark.convtrace(baseline="ref.ctrace")     # beside the file of the test
    def test_training(): ...

`pytest --convtrace-update` writes the baselines. `tolerance` is the argument of `convtrace-diff --tol`: a number for all
values, or {pattern: number}. Without it convtrace-diff uses its own rules: runs of equal setups must be equal bit by bit.

The test runs in a process of its own, with the options and fixtures of this session, which starts it and compares its trace.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from . import tree

_SESSION = "PYTEST_CONVTRACE_SESSION"  # names a file with the instructions for the traced process
_SKIPPED = "skipped"  # a file with the reason, where the test was skipped
_is_traced = False  # whether this process was started for one test


def pytest_addoption(parser):
    parser.getgroup("convtrace").addoption(
        "--convtrace-update", action="store_true",
        help="write the baselines of the tests that are marked convtrace, instead of comparing with them")


def pytest_configure(config):
    config.addinivalue_line("markers", "convtrace(baseline, tolerance=None): run the test traced, and compare its "
                            "trace with the file `baseline`, which --convtrace-update writes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    mark = item.get_closest_marker("convtrace")
    if mark is not None and not _is_traced:
        item.setup = item.teardown = lambda: None  # its fixtures are for the process that trains
        item.runtest = lambda: _check(item, *mark.args, **mark.kwargs)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tells a worker of pytest-xdist what this session was asked for."""
    node.workerinput["convtrace_arguments"] = _arguments(node.config)


def _check(item, baseline, tolerance=None):
    baseline = os.path.join(os.path.dirname(str(item.path)), baseline)
    update = item.config.getoption("convtrace_update")
    if not update and not os.path.exists(baseline):
        pytest.fail("there is no baseline %s; pytest --convtrace-update writes it" % baseline, pytrace=False)
    folder = str(item._request.getfixturevalue("tmp_path_factory").mktemp("convtrace"))
    candidate = _train(item, folder)
    # A trace that is not whole, or has findings, is not equal to itself either.
    _compare(candidate if update else baseline, candidate, tolerance)
    if update:
        os.makedirs(os.path.dirname(baseline), exist_ok=True)
        unfinished = "%s.%d.unfinished" % (baseline, os.getpid())
        shutil.move(candidate, unfinished)
        os.replace(unfinished, baseline)


def _train(item, folder):
    """Runs the test in a traced process. @return its trace, in `folder`."""
    session = {"path": sys.path, "arguments": _arguments(item.config), "test": _name(item), "folder": folder}
    if item.config.pluginmanager.hasplugin("xdist"):
        session["arguments"].append("-n0")
    # Not in the command line, which a trace has: two runs with other options would count as two programs.
    with open(os.path.join(folder, "session.json"), "w") as file:
        json.dump(session, file)
    done = subprocess.run(
        [tree.program("convtrace"), "run", "--output", os.path.join(folder, "%r-%p.ctrace"), "--",
         sys.executable, "-m", __name__, item.nodeid],
        env={**os.environ, _SESSION: file.name}, cwd=str(item.config.invocation_params.dir), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if done.returncode:
        pytest.fail("it fails, traced, with exit status %d:\n%s" % (done.returncode, done.stdout), pytrace=False)
    if os.path.exists(os.path.join(folder, _SKIPPED)):
        with open(os.path.join(folder, _SKIPPED), encoding="utf-8") as file:
            pytest.skip(file.read())
    traces = glob.glob(os.path.join(glob.escape(folder), "*.ctrace"))
    if len(traces) != 1:
        pytest.fail("one process was to leave a trace, and %d did; one that calls no module of PyTorch leaves none:\n%s"
                    % (len(traces), done.stdout), pytrace=False)
    return traces[0]


def _compare(baseline, candidate, tolerance):
    if not isinstance(tolerance, dict):
        tolerance = {} if tolerance is None else {"*": tolerance}
    options = ["--tol=%s=%r" % allowed for allowed in tolerance.items()]
    done = subprocess.run([tree.program("convtrace-diff"), *options, "--", baseline, candidate], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True)
    if done.returncode:
        verdict = re.search("^[A-Z]{3}[A-Z ]{2}", done.stdout, re.MULTILINE)
        at = verdict.start() if verdict else 0  # first, for the summary of pytest
        pytest.fail("%s\n%s%s\nbaseline   %s\ncandidate  %s" % (
            done.stdout[at:], done.stdout[:at], done.stderr, baseline, candidate), pytrace=False)


def _arguments(config):
    if hasattr(config, "workerinput"):
        return list(config.workerinput["convtrace_arguments"])
    return [str(argument) for argument in config.invocation_params.args]


def _name(item):
    return "%s::%s" % (item.path, item.nodeid.partition("::")[2])


class _One:
    """The plugin of a traced process, whose session runs one test."""

    def __init__(self, test, folder):
        self._test, self._folder = test, folder

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config):
        # Reports, and what is expected of the test, are the business of the session that started this one.
        vars(config.option).update(xmlpath=None, report_log=None, log_file=os.devnull, runxfail=True, usepdb=False,
                                   basetemp=os.path.join(self._folder, "tmp"))

    def pytest_ignore_collect(self, collection_path):
        is_other = str(collection_path) != self._test.partition("::")[0]
        if is_other and collection_path.is_file() and collection_path.name != "__init__.py":
            return True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if _name(item) == self._test][:1]

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            with open(os.path.join(self._folder, _SKIPPED), "w", encoding="utf-8") as file:
                file.write(report.longrepr[2].replace("Skipped: ", "", 1))


def run_one():
    """Runs one test of a session in the traced process. Without a session it runs the tests of the command line, so that the
    command in a trace can be run by hand. @return an exit status."""
    global _is_traced

    _is_traced = True
    if _SESSION not in os.environ:
        return pytest.main()
    with open(os.environ.pop(_SESSION)) as file:
        session = json.load(file)
    sys.path[:] = session["path"]
    return pytest.main(session["arguments"], plugins=[_One(session["test"], session["folder"])])


if __name__ == "__main__":
    from convtrace import pytest_plugin  # as the session knows it, not as __main__

    sys.exit(pytest_plugin.run_one())
