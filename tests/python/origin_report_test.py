"""convtrace origin as a program: its JSON against docs/origin-report.schema.json."""
import os
import pathlib
import subprocess
import unittest

from diff_report_test import GOLDEN, ROOT, Reports

BIN = pathlib.Path(os.environ["CONVTRACE_BUILD"]) / "bin"
SIMULATE = BIN / "simulate_job"


class Schema(Reports):
    SCHEMA = pathlib.Path(ROOT) / "docs" / "origin-report.schema.json"

    def report(self, *words):
        """@return the report, and the exit code."""
        return self.report_of(BIN / "convtrace", "origin", "--json", "-", *words, codes=(0, 3, 4))

    def test_reports_of_single_traces_follow_it(self):
        traces = sorted(GOLDEN.glob("*.ctrace"))
        self.assertGreater(len(traces), 4)
        for trace in traces:
            report, code = self.report(trace)
            self.assertEqual(code, 4 if report["origins"] else 3 if report["incomplete"] else 0, trace)
        cut = self.folder / "cut.ctrace"
        cut.write_bytes((GOLDEN / "values.ctrace").read_bytes()[:-100])
        self.assertEqual(len(self.report(cut)[0]["incomplete"]), 1)

    @unittest.skipUnless(SIMULATE.exists(), "simulate_job is not built")
    def test_reports_of_jobs_follow_it(self):
        kinds = set()
        for kind in (None, "nan", "scale", "lost", "flip", "skip", "swap", "stale"):
            folder = self.folder / (kind or "clean")
            fault = ["--origin", "2:3", "--kind", kind] if kind else []
            subprocess.run([SIMULATE, "--ranks", "6", "--dp", "6", "--steps", "6", *fault, "--output", folder],
                           check=True, stdout=subprocess.DEVNULL)
            report, code = self.report(folder)
            self.assertEqual(code, 4 if kind else 0, kind)
            kinds |= {origin["kind"] for origin in report["origins"]}
            self.assertEqual(report["ranks"], list(range(6)))
            for origin in report["origins"]:
                self.assertNotEqual(origin["rank"] is None, not origin["suspects"])
        self.assertLessEqual({"nan", "scale", "wrong-sum", "mismatch", "parted"}, kinds)


if __name__ == "__main__":
    unittest.main()
