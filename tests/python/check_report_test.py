"""convtrace check as a program: its JSON against docs/check-report.schema.json."""
import os
import pathlib
import unittest

from diff_report_test import GOLDEN, PAIRS, ROOT, Reports

CONVTRACE = pathlib.Path(os.environ["CONVTRACE_BUILD"]) / "bin" / "convtrace"


class Schema(Reports):
    SCHEMA = pathlib.Path(ROOT) / "docs" / "check-report.schema.json"

    def report(self, *words):
        """@return the report, and the exit code."""
        return self.report_of(CONVTRACE, "check", "--json", "-", *words, codes=(0, 3, 4))

    def test_every_report_follows_it(self):
        traces = sorted(GOLDEN.glob("*.ctrace"))
        self.assertGreater(len(traces), 4)
        codes, ids = set(), set()
        for pair in sorted(path.name for path in PAIRS.iterdir()):
            traces_of_pair = self.split(pair)
            for words in ((traces_of_pair[0],), traces_of_pair):
                report, code = self.report(*words)
                codes.add(code)
                ids |= {finding["id"] for finding in report["findings"]}
        for trace in traces:
            codes.add(self.report(trace)[1])
        cut = self.folder / "cut.ctrace"
        cut.write_bytes((GOLDEN / "values.ctrace").read_bytes()[:-100])
        report, code = self.report("--only", "two-steps", cut)
        self.assertEqual(len(report["incomplete"]), 1)
        self.assertEqual(codes | {code}, {0, 3, 4})
        self.assertLessEqual({"nan", "output-aliases-input", "input-mutated"}, ids)

    def test_the_exit_code_is_that_of_the_findings(self):
        for trace in sorted(GOLDEN.glob("*.ctrace")):
            report, code = self.report(trace)
            levels = {finding["level"] for finding in report["findings"]}
            wanted = 4 if levels & {"error", "warning"} else 3 if report["incomplete"] else 0
            self.assertEqual(code, wanted, trace)
            self.assertEqual({one["id"] for one in self.report("--only", "nan", trace)[0]["checks"]}, {"nan"})


if __name__ == "__main__":
    unittest.main()
