"""convtrace-diff as a program: its JSON against docs/diff-report.schema.json, and its files after an interrupt."""
import json
import math
import operator
import os
import pathlib
import re
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from reader_test import ROOT  # which finds the package

import convtrace

DIFF = pathlib.Path(os.environ["CONVTRACE_BUILD"]) / "bin" / "convtrace-diff"
GOLDEN = pathlib.Path(ROOT) / "tests" / "golden" / "v1"
PAIRS = pathlib.Path(ROOT) / "tests" / "fuzz" / "corpus" / "diff"  # seeds: the first one's length, two traces


def strict(schema):
    """@return the schema, changed so that keys which it does not name are errors."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if "properties" in closed and schema.get("type") == "object":
        closed["additionalProperties"] = False
    return closed


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def split(self, pair):
        content = (PAIRS / pair).read_bytes()
        length, = struct.unpack_from("<I", content)
        for name, part in ("base", content[4:4 + length]), ("cand", content[4 + length:]):
            (self.folder / f"{name}.ctrace").write_bytes(part)
        return self.folder / "base.ctrace", self.folder / "cand.ctrace"


class Reports(Folder):
    """Tests of a program whose reports follow `SCHEMA`."""

    def setUp(self):
        super().setUp()
        try:
            import jsonschema
        except ImportError:
            self.skipTest("the package jsonschema is not installed")
        schema = json.loads(self.SCHEMA.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        self.validator = jsonschema.Draft202012Validator(strict(schema))

    def report_of(self, *command, codes):
        """@return the report on stdout, and the exit code, one of `codes`."""
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn(run.returncode, codes, run.stderr)
        report = json.loads(run.stdout)
        problems = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in self.validator.iter_errors(report)]
        self.assertEqual(problems, [], command)
        return report, run.returncode


class SchemaTestCase(Reports):
    SCHEMA = pathlib.Path(ROOT) / "docs" / "diff-report.schema.json"

    def report(self, base, cand, *options):
        return self.report_of(DIFF, base, cand, "--json", "-", *options, codes=(0, 1, 3, 4))[0]

    def test_every_report_follows_it(self):
        traces = sorted(GOLDEN.glob("*.ctrace"))
        self.assertGreater(len(traces), 4)
        verdicts = set()
        for base in traces:
            for cand in traces:
                for options in (), ("--allow-incomplete",):
                    verdicts.add(self.report(base, cand, *options)["verdict"])
        for pair in sorted(path.name for path in PAIRS.iterdir()):
            base, cand = self.split(pair)
            report = self.report(base, cand, "--noise", base)
            verdicts.add(report["verdict"])
            verdicts.add(self.report(cand, base)["verdict"])
        self.assertEqual(verdicts, {"same", "diverged", "not-comparable", "findings", "incomplete", "cannot-tell"})

    def test_a_value_that_changed_on_its_way_has_a_consumer(self):
        root = self.report(*self.split("changed"))["root"]
        self.assertEqual((root["class"], root["consumer"]["scope"]), ("changed-between", "head"))

    def test_it_refuses_other_reports(self):
        report = self.report(*self.split("diverged"))
        for path, value in (("verdict",), "maybe"), (("root", "class"), "bad"), (("root", "base", "hash"), 7), (("more",), 1):
            broken = json.loads(json.dumps(report))
            at = broken
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
            self.assertFalse(self.validator.is_valid(broken), path)


class ObjectsTestCase(Folder):
    """The reports as objects of Python."""

    def test_a_report_is_the_json_with_its_page_and_text(self):
        base, cand = self.split("diverged")
        report = convtrace.diff(base, cand)
        self.assertIsInstance(report, convtrace.Report)
        self.assertEqual((report.verdict, report["verdict"]), ("diverged", "diverged"))
        self.assertEqual(report.root.scope, report["root"]["scope"])
        self.assertIn("DIVERGED at step", str(report))
        self.assertIn("&lt;!doctype html&gt;", report._repr_html_())
        self.assertFalse(hasattr(report, "nothing"))

    def test_options_are_passed(self):
        base, cand = self.split("diverged")
        self.assertNotEqual(convtrace.diff(base, cand, "--ignore", "*").verdict, "diverged")

    def test_a_command_that_cannot_judge_raises_what_it_says(self):
        with self.assertRaisesRegex(convtrace.Failed, "nothing.ctrace"):
            convtrace.diff(self.folder / "nothing.ctrace", self.folder / "nothing.ctrace")

    def test_check_and_origin(self):
        trace = GOLDEN / sorted(path.name for path in GOLDEN.glob("*.ctrace"))[0]
        self.assertIn("findings", convtrace.check(trace))
        self.assertIn("<html", convtrace.origin(trace).page)


class PaletteTestCase(unittest.TestCase):
    """What the colours of agreement and of difference are to somebody who sees no green: the matrix is that of Machado, Oliveira and
    Fernandes (2009) for deuteranopia, the distance that of CIE 1976 in L*a*b*."""
    SEEN = (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)
    XYZ = (0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041)
    WHITE = 0.95047, 1, 1.08883

    def seen(self, color):
        """@return L*, a*, b*"""
        linear = []
        for at in 1, 3, 5:
            part = int(color[at:at + 2], 16) / 255
            linear.append(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
        times = lambda matrix, vector: [sum(map(operator.mul, row, vector)) for row in matrix]  # noqa: E731
        there = times(self.XYZ, [min(max(part, 0), 1) for part in times(self.SEEN, linear)])
        x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in map(operator.truediv, there, self.WHITE))
        return 116 * y - 16, 500 * (x - y), 200 * (y - z)

    def test_agreement_and_difference_are_told_apart(self):
        css = (pathlib.Path(ROOT) / "tools" / "report" / "report.css").read_text()
        light = dict(re.findall(r"--([ch]\d+):(#[0-9a-f]{6})", css[:css.index("@media")]))
        for agree, differ in (("c0", "c5"), ("c3", "c5"), *((one, other) for one in ("h1", "h3", "h4", "h5")
                                                            for other in ("h7", "h8", "h9", "h10", "h11", "h12", "h13"))):
            self.assertGreaterEqual(math.dist(self.seen(light[agree]), self.seen(light[differ])), 40, (agree, differ))


class InterruptTestCase(Folder):
    def interrupted(self, number):
        """Ends a run by a signal while it waits for a reader of its CSV."""
        report, pipe = self.folder / "report.json", self.folder / "rows.csv"
        report.write_text("an earlier one")
        os.mkfifo(pipe)
        base, cand = self.split("diverged")
        run = subprocess.Popen([DIFF, base, cand, "--json", report, "--csv", pipe], stdout=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not list(self.folder.glob("*.unfinished")) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(len(list(self.folder.glob("*.unfinished"))), 1)
        run.send_signal(number)
        out, _ = run.communicate(timeout=60)
        self.assertEqual((run.returncode, out), (-number, b""))
        self.assertEqual(list(self.folder.glob("*.unfinished")), [])
        self.assertEqual(report.read_text(), "an earlier one")

    def test_an_interrupt_leaves_no_half_written_report(self):
        self.interrupted(signal.SIGINT)

    def test_nor_does_a_termination(self):
        self.interrupted(signal.SIGTERM)

    def test_a_reader_that_goes_away_takes_no_report_with_it(self):
        base, cand = self.split("diverged")
        report = self.folder / "report.json"
        read, write = os.pipe()
        os.close(read)
        run = subprocess.run([DIFF, base, cand, "--json", report], stdout=write, stderr=subprocess.PIPE, timeout=60,
                             preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
        os.close(write)
        self.assertEqual(run.returncode, -signal.SIGPIPE)
        self.assertEqual(json.loads(report.read_text())["verdict"], "diverged")
        self.assertEqual(list(self.folder.glob("*.unfinished")), [])


if __name__ == "__main__":
    unittest.main()
