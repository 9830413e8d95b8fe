"""The short answers of --brief, against docs/brief.schema.json and the full reports."""
import json
import os
import pathlib
import subprocess
import unittest

from diff_report_test import DIFF, GOLDEN, PAIRS, ROOT, Reports

CONVTRACE = pathlib.Path(os.environ["CONVTRACE_BUILD"]) / "bin" / "convtrace"
MOST = 2048


class Brief(Reports):
    SCHEMA = pathlib.Path(ROOT) / "docs" / "brief.schema.json"

    def both(self, command, *words):
        """@return the short answer, the full report, and the exit code, which is the same."""
        short, code = self.report_of(*command, "--brief", *words, codes=(0, 1, 3, 4))
        run = subprocess.run([*command, "--brief", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertLessEqual(len(run.stdout), MOST + 1)
        self.assertEqual(run.stdout.count(b"\n"), 1)
        full = subprocess.run([*command, "--json", "-", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertEqual(full.returncode, code)
        return short, json.loads(full.stdout), code

    def check_place(self, short, full):
        for key in "rank", "step", "phase", "scope", "op":
            self.assertEqual(short["place"][key], full[key], key)

    def test_of_the_diff(self):
        verdicts, led_on = set(), 0
        for pair in sorted(path.name for path in PAIRS.iterdir()):
            short, full, _ = self.both([DIFF], *self.split(pair))
            self.assertEqual((short["verdict"], short["headline"]), (full["verdict"], full["headline"]))
            verdicts.add(short["verdict"])
            if full["root"]:
                self.check_place(short, full["root"])
                self.assertIn(short["confidence"], ("proven", "likely", "possible"))
            if full["next"] and short["next"]:
                led_on += 1
                self.assertEqual(short["next"], full["next"])
        self.assertGreater(led_on, 0)
        self.assertLessEqual({"same", "diverged", "not-comparable"}, verdicts)

    def test_of_check(self):
        verdicts = set()
        traces = [*sorted(GOLDEN.glob("*.ctrace")), *(self.split(path.name)[0] for path in PAIRS.iterdir())]
        for trace in traces:
            short, full, _ = self.both([CONVTRACE, "check"], trace)
            verdicts.add(short["verdict"])
            if full["findings"]:
                worst = full["findings"][0]
                self.assertEqual(short["verdict"], worst["level"])
                self.assertIn(worst["id"], short["evidence"][0])
                self.check_place(short, worst)
            else:
                self.assertIsNone(short["place"])
                self.assertIsNone(short["confidence"])
        self.assertLessEqual({"clean", "error"}, verdicts)

    def test_of_origin(self):
        for trace in sorted(GOLDEN.glob("*.ctrace")):
            short, full, _ = self.both([CONVTRACE, "origin"], trace)
            self.assertEqual(short["headline"], full["headline"])
            if full["origins"]:
                self.check_place(short, full["origins"][0])

    def test_of_findings(self):
        found = 0
        for trace in sorted(GOLDEN.glob("*.ctrace")):
            short, code = self.report_of(CONVTRACE, "findings", "--brief", trace, codes=(0, 3, 4))
            lines = subprocess.run([CONVTRACE, "findings", "--json", trace], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL).stdout.splitlines()
            first = next((one for one in map(json.loads, lines) if not one["suppressed"]), None)
            if first is None:
                self.assertIn(short["verdict"], ("clean", "incomplete"))
                continue
            found += 1
            self.assertEqual((short["verdict"], short["cause"]), (first["level"], first["kind"]))
            self.check_place(short, first)
        self.assertGreater(found, 0)

    def test_a_file_is_written_instead_of_stdout(self):
        path = self.folder / "brief.json"
        run = subprocess.run([DIFF, "--brief", "--json", path, *self.split(min(one.name for one in PAIRS.iterdir()))],
                             stdout=subprocess.PIPE)
        self.assertEqual(run.stdout, b"")
        self.assertEqual(list(self.validator.iter_errors(json.loads(path.read_text()))), [])


if __name__ == "__main__":
    unittest.main()
