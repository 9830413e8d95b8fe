"""tools/suites on a made-up suite: what differs is named, what passes once more is flaky, and findings need a known word."""
import os
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import findings  # noqa: E402
import known  # noqa: E402
import main  # noqa: E402
import outcomes  # noqa: E402
import page  # noqa: E402
import table  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CONVTRACE_BUILD") or HERE.parents[1] / "build" / "release").resolve()
TESTS = '''
import os, unittest
import pytest, torch

TRACED = "LD_PRELOAD" in os.environ

def train():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()

def test_trains():
    train()

class Cases(unittest.TestCase):
    def test_fails_when_traced(self):
        self.assertFalse(TRACED)

@pytest.mark.parametrize("x", ["a.b", "c::d"])
def test_fails_in_another_way(x):
    raise (ValueError if TRACED else KeyError)(x)

@pytest.mark.skipif(TRACED, reason="")
def test_skips():
    pass

@pytest.mark.xfail
def test_fails_both_ways():
    assert False

def test_fails_alike():
    assert TRACED == "another text in each run"
'''
FIRST = '''
import os, pathlib

def test_once():
    path = pathlib.Path(__file__ + ".ran")
    if "LD_PRELOAD" in os.environ and not path.exists():
        path.touch()
        raise OSError("the first time, when traced")
'''


class TheTool(unittest.TestCase):
    def test_a_suite_that_differs(self):
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            files = folder / "files"
            (files / "tests").mkdir(parents=True)
            (files / "tests" / "test_differs.py").write_text(TESTS)
            (files / "tests" / "test_once.py").write_text(FIRST)
            ways = main.Ways(table.Suite("sdist", "made-up==1", ("tests",)), pathlib.Path(sys.executable), files, BUILD, folder, 120)
            (plain, _, plain_end), (traced, _, traced_end) = ways.run("plain", ["tests"]), ways.run("traced", ["tests"])
            self.assertEqual((plain_end, traced_end), ("", ""))
            self.assertEqual(outcomes.counts(plain), "4/3")
            differing = outcomes.differences(plain, traced)
            again = outcomes.files(differing, files)
            self.assertEqual(again, ["tests/test_differs.py", "tests/test_once.py"])
            real, flaky = outcomes.split(differing, ways.run("plain-again", again)[0], ways.run("traced-again", again)[0])
            module = "tests.test_differs"
            self.assertEqual(real, {
                (module + ".Cases", "test_fails_when_traced"): ("passed", "failed (AssertionError)") * 2,
                (module, "test_fails_in_another_way[a.b]"): ("failed (KeyError)", "failed (ValueError)") * 2,
                (module, "test_fails_in_another_way[c::d]"): ("failed (KeyError)", "failed (ValueError)") * 2,
                (module, "test_skips"): ("passed", "skipped") * 2})
            self.assertEqual(flaky, {("tests.test_once", "test_once"): ("passed", "failed (OSError)", "passed", "passed")})
            read = findings.read(BUILD / "bin" / "convtrace", folder / "traced" / "traces", folder / "traced" / "log")
            self.assertEqual((read.traces, read.broken, dict(read.errors), read.alive), (1, [], {}, True))

    def test_a_test_of_several_cases(self):
        with tempfile.TemporaryDirectory() as made:
            report = pathlib.Path(made) / "junit.xml"
            report.write_text("""<testsuites><testsuite>
                <testcase classname="a" name="tried_again"/><testcase classname="a" name="tried_again"/>
                <testcase classname="a" name="torn_down"/>
                <testcase classname="a" name="torn_down"><error message="OSError: gone"/></testcase>
                </testsuite></testsuites>""")
            self.assertEqual(outcomes.read(report), {("a", "tried_again"): "passed", ("a", "torn_down"): "passed, error (OSError)"})

    def test_a_run_that_ends_early_or_never(self):
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            (folder / "test_dies.py").write_text("import os\ndef test_dies():\n    os.abort()\n")
            (folder / "test_waits.py").write_text("import time\ndef test_waits():\n    time.sleep(600)\n")
            ways = main.Ways(table.Suite("sdist", "made-up==1", ()), pathlib.Path(sys.executable), folder, BUILD, folder / "ways", 20)
            found, _, ended = ways.run("plain", ["test_dies.py"])
            self.assertEqual((found, ended.startswith("plain ended with -6: ")), ({}, True))
            ways.limit_s = 1
            self.assertEqual(ways.run("plain", ["test_waits.py"])[2], "plain was not done in 1 s")

    def test_what_the_log_says_of_the_observer(self):
        with tempfile.TemporaryDirectory() as made:
            log = pathlib.Path(made) / "log"
            log.write_text("convtrace[7] W trace: CT-1106 /x: 9 events, 2 not recorded\nconvtrace[7] W observer: CT-1301 tensor: no\n")
            read = findings.read(BUILD / "bin" / "convtrace", pathlib.Path(made), log)
            self.assertEqual((dict(read.messages), read.off, read.alive),
                             ({"CT-1106": 1, "CT-1301": 1}, ["convtrace[7] W observer: CT-1301 tensor: no"], False))

    def test_a_finding_is_unknown_until_the_table_has_it(self):
        entry = known.Known("made-up", "check", "nan", "Layer#* output:0", True, "made on purpose")
        before, known.KNOWN = known.KNOWN, (entry,)
        try:
            self.assertEqual(findings.verdict("made-up", "check", "nan", "Layer#3 output:0"), ("true", "made on purpose"))
            for other in (("other", "check", "nan", "Layer#3 output:0"), ("made-up", "check", "nan", "Layer#3 output:1"),
                          ("made-up", "check", "stale-gradient", "Layer#3 output:0"), ("made-up", "findings", "nan", "Layer#3 output:0")):
                self.assertEqual(findings.verdict(*other)[0], "unknown")
        finally:
            known.KNOWN = before

    RESULT = {"suite": "made-up", "version": "1", "tests_from": "sdist", "date": "2026-01-02", "commit": "c1", "tests": 3, "plain": "3/0",
              "traced": "3/0", "ended": [], "differences": {}, "flaky": {}, "plain_s": 2.0, "traced_s": 3.0, "traces": 1,
              "bytes": 1500000, "values": 7, "unclosed": 0, "broken": [], "messages": {}, "off": [], "alive": True, "errors": []}

    def test_what_makes_it_fail(self):
        self.assertTrue(main.good(self.RESULT))
        error = {"kind": "nan", "word": "true"}
        self.assertTrue(main.good({**self.RESULT, "errors": [error], "flaky": {"t": ("passed",) * 4}}))
        for bad in ({"ended": ["x"]}, {"differences": {"t": ("passed", "failed") * 2}}, {"broken": ["x"]}, {"alive": False}, {"tests": 0},
                    {"errors": [error, {**error, "word": "false"}]}, {"errors": [{**error, "word": "unknown"}]}):
            self.assertFalse(main.good({**self.RESULT, **bad}), bad)

    def test_a_row_takes_the_place_of_the_suites_older_one(self):
        with tempfile.TemporaryDirectory() as made:
            path = pathlib.Path(made) / "page.md"
            path.write_text("# Title\n\n%s\n| made-up | not run |\n| other | kept |\n\nText.\n" % page.HEAD)
            page.record(path, self.RESULT)
            page.record(path, {**self.RESULT, "suite": "third"})
            cells = "| 1 | sdist | 3 | 3/0 | 3/0 | none | none | 1.50 | 1.5 MB | none | alive | 2026-01-02, c1 |"
            self.assertEqual(path.read_text(), "# Title\n\n%s\n| made-up %s\n| other | kept |\n| third %s\n\nText.\n" % (page.HEAD, cells, cells))

    def test_every_known_finding_is_of_a_suite(self):
        self.assertEqual([entry for entry in known.KNOWN if entry.suite not in table.SUITES or not entry.reason], [])


if __name__ == "__main__":
    unittest.main()
