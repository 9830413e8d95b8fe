"""The plugin for pytest, by real sessions of pytest whose tests train a small model under the real preload library."""
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from preload_test import BUILD, SHOW, SKIPPED
from short_run import long

try:
    import pytest  # noqa: F401
except ImportError:
    print("skipped: %s has no pytest" % sys.executable)
    sys.exit(SKIPPED)
try:
    import xdist
except ImportError:
    xdist = None

TRAIN = """
import os, pytest

def train(fault=0, rate=0.1, steps=3):
    import torch

    class Activation(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.gelu(x) * (1 + fault)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Activation(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
"""
ONE = TRAIN + """
@pytest.mark.convtrace(baseline="ref.ctrace"%s)
def test_one():
    print("it ran in", os.getpid())
    train(%s)
"""


def environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CONVTRACE", "PYTEST")) and k != "LD_PRELOAD"}
    return {**kept, "PYTHONPATH": os.path.join(BUILD, "share", "convtrace", "python"), "OMP_NUM_THREADS": "1"}


class SessionsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, text, name="test_it.py"):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def pytest(self, *arguments, passed=0, failed=0, skipped=0, xfailed=0, folder="", **more):
        """A session in `folder`. Checks how many tests had which outcome. @return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "convtrace.pytest_plugin", "--junitxml", "outcome.xml", *arguments],
            env={**environment(), **more}, cwd=os.path.join(self.folder, folder), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, universal_newlines=True)
        outcome = xml.etree.ElementTree.parse(os.path.join(self.folder, folder, "outcome.xml"))
        found = [case[0].get("type", case[0].tag) if len(case) else "passed" for case in outcome.iter("testcase")]
        expected = ["failure"] * failed + ["passed"] * passed + ["pytest.skip"] * skipped + ["pytest.xfail"] * xfailed
        self.assertEqual((sorted(found), done.returncode), (sorted(expected), 1 if failed else 0), done.stdout)
        return done.stdout

    def traces(self):
        return sorted(os.path.relpath(os.path.join(place, name), self.folder)
                      for place, _, names in os.walk(self.folder) for name in names if name.endswith(".ctrace"))


class Verdicts(SessionsTest):
    def test_a_baseline_is_written_when_asked_for_and_a_training_that_repeats_passes(self):
        self.write(ONE % ("", ""))
        said = self.pytest(failed=1)
        self.assertIn("there is no baseline", said)
        self.assertIn("--convtrace-update writes it", said)
        self.assertNotIn("it ran in", said)
        self.assertEqual(self.traces(), [])
        self.pytest("--convtrace-update", passed=1)
        self.assertEqual(self.traces(), ["ref.ctrace"])
        self.pytest(passed=1)
        self.pytest("test_it.py::test_one", passed=1, CONVTRACE_MODE="hash")  # settings reach it
        self.assertEqual(self.traces(), ["ref.ctrace"])

    def test_another_result_fails_with_the_report_and_an_update_accepts_it(self):
        self.write(ONE % ("", ""))
        self.pytest("--convtrace-update", passed=1)
        self.write(ONE % ("", "fault=1e-3"))
        said = self.pytest(failed=1)
        self.assertIn("FAILED test_it.py::test_one - Failed: DIVERGED at step 0, forward, 1 (call", said)
        self.assertIn("(rms difference), tolerance used", said)
        self.assertIn("baseline   " + os.path.join(self.folder, "ref.ctrace"), said)
        self.pytest("--convtrace-update", passed=1)
        self.pytest(passed=1)

    @long("test_another_result_fails_with_the_report; tolerances: diff_test")
    def test_a_tolerance_is_that_of_convtrace_diff(self):
        fault = "fault=float(os.environ.get('FAULT', 0))"
        self.write(ONE % ("", fault))
        self.pytest("--convtrace-update", passed=1)
        self.pytest(failed=1, FAULT="2e-7")  # two equal setups: a difference of bits
        for tolerance, passed in (("1e-6", 0), ("{'*': 1e-6, 're:.': 0.5}", 1)):
            with self.subTest(tolerance):
                self.write(ONE % (", tolerance=" + tolerance, fault))
                self.pytest(passed=passed, failed=1 - passed, FAULT="1e-3")

    @long('test_a_baseline_is_written_when_asked_for; exit codes of the diff: diff_test "command"')
    def test_what_cannot_be_compared_does_not_pass(self):
        self.write(ONE % ("", ""))
        self.pytest("--convtrace-update", passed=1)
        self.write(ONE % ("", "steps=2"))
        self.assertIn("Failed: INCOMPLETE", self.pytest(failed=1))
        self.write("no trace", "ref.ctrace")
        self.assertIn("CT-2101", self.pytest(failed=1))

    def test_without_a_training_there_is_no_baseline(self):
        self.write("import pytest\n\n@pytest.mark.convtrace('ref.ctrace')\ndef test_nothing():\n    pass\n")
        self.assertIn("one that calls no module of PyTorch leaves none", self.pytest("--convtrace-update", failed=1))
        self.assertEqual(self.traces(), [])


class Outcomes(SessionsTest):
    """A test's own outcome is that of the session, and its options, fixtures and ids are those of the traced process."""

    def test_a_failure_is_reported_with_its_output(self):
        self.write(ONE % ("", "") + "    assert os.environ.get('SOUND'), 'it broke'\n")
        self.pytest("--convtrace-update", passed=1, SOUND="1")
        for options in [], ["--convtrace-update"]:
            said = self.pytest(*options, failed=1)
            self.assertIn("AssertionError: it broke", said)
            self.assertIn("it ran in", said)
        self.write(ONE % ("", "") + "    os.kill(os.getpid(), 9)\n")
        self.assertIn("exit status -9", self.pytest(failed=1))

    def test_skips_and_expected_failures(self):
        self.write(TRAIN + """
@pytest.mark.convtrace(baseline="ref.ctrace")
def test_skips():
    pytest.skip("not here")

@pytest.mark.xfail(strict=True)
@pytest.mark.convtrace(baseline="ref.ctrace")
def test_fails():
    assert False

@pytest.mark.xfail(strict=True)
@pytest.mark.convtrace(baseline="ref.ctrace")
def test_passes():
    train()

@pytest.mark.skipif(True, reason="never")
@pytest.mark.convtrace(baseline="ref.ctrace")
def test_never():
    raise AssertionError
""")
        self.pytest("--convtrace-update", "-k", "passes", failed=1)
        said = self.pytest("-rs", skipped=2, xfailed=1, failed=1)
        self.assertIn("not here", said)
        self.assertIn("XPASS(strict)", said)

    def test_fixtures_options_and_plugins_are_those_of_the_traced_process_alone(self):
        self.write("""
import os, pytest
def pytest_addoption(parser):
    parser.addoption("--rate", type=float)
@pytest.fixture(scope="module")
def rate(request, tmp_path_factory):
    with open("fixtures", "a") as file:
        file.write("%d\\n" % os.getpid())
    tmp_path_factory.mktemp("own")
    return request.config.getoption("rate")
""", "conftest.py")
        self.write(TRAIN + """
class Test:
    @pytest.mark.convtrace(baseline="made/here/ref.ctrace")
    def test_in_a_class(self, rate):
        train(rate=rate)

def test_unmarked():
    assert "convtrace" not in os.environ.get("LD_PRELOAD", "")
""")
        # A module that is not imported where the test is traced.
        self.write("import os\nassert 'convtrace' not in os.environ.get('LD_PRELOAD', '')\n", "test_other.py")
        options = ["--basetemp=temporary", "--strict-markers", "--log-file=log"]
        self.pytest("--rate=0.1", "--convtrace-update", *options, passed=2)
        self.assertIn("made/here/ref.ctrace", self.traces())
        self.pytest("--rate=0.1", *options, passed=2)
        self.assertIn("DIVERGED", self.pytest("--rate=0.2", *options, passed=1, failed=1))
        with open(os.path.join(self.folder, "fixtures")) as file:
            self.assertEqual(len(set(file)), 3)

    def test_the_command_that_a_trace_has_can_be_run_by_hand(self):
        self.write(ONE % ("", ""))
        self.pytest("--convtrace-update", passed=1)
        subprocess.run([SHOW, "run", "--output", "again.ctrace", "--", sys.executable, "-m", "convtrace.pytest_plugin",
                        "test_it.py::test_one"], cwd=self.folder, env=environment(), stdout=subprocess.DEVNULL, check=True)
        done = subprocess.run([SHOW, "diff", "ref.ctrace", "again.ctrace"], cwd=self.folder, stdout=subprocess.PIPE)
        self.assertTrue(done.stdout.startswith(b"IDENTICAL"), done.stdout)

    def test_a_unittest_class(self):
        self.write(TRAIN + """
from unittest import TestCase as Base
class Case(Base):
    def setUp(self):
        self.rate = 0.1
    @pytest.mark.convtrace(baseline="ref.ctrace")
    def test_it(self):
        train(rate=self.rate)
""")
        self.pytest("--convtrace-update", passed=1)
        self.pytest(passed=1)


class Ids(SessionsTest):
    def parametrized(self):
        self.write(TRAIN + """
cases = [pytest.param(name, text, id=text, marks=pytest.mark.convtrace(baseline=name + ".ctrace"))
         for name, text in (("a", "x::y"), ("b", "[z] 0.2"), ("c", "plain"))]
@pytest.mark.parametrize("name, text", cases)
def test_each(name, text):
    train(rate=1 / ord(name))
""", "sub/test_it.py")

    def test_parametrized_tests_each_have_their_own(self):
        self.parametrized()
        self.pytest("--convtrace-update", passed=3)
        self.assertEqual(self.traces(), ["sub/%s.ctrace" % name for name in "abc"])
        self.pytest(passed=3)
        self.pytest("test_it.py::test_each[plain]", passed=1, folder="sub")
        os.replace(os.path.join(self.folder, "sub", "a.ctrace"), os.path.join(self.folder, "sub", "b.ctrace"))
        self.assertIn("DIVERGED", self.pytest("sub/test_it.py::test_each[[z] 0.2]", failed=1))

    @unittest.skipUnless(xdist, "no pytest-xdist")
    def test_workers_of_xdist(self):
        self.parametrized()
        self.pytest("--convtrace-update", "-n2", "sub", passed=3)
        self.pytest("-n2", passed=3)
        os.remove(os.path.join(self.folder, "sub", "c.ctrace"))
        self.assertIn("there is no baseline", self.pytest("-n2", passed=2, failed=1))


if __name__ == "__main__":
    unittest.main()
