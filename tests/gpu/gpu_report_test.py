"""docs/gpu-results.md and docs/gpu-results/: results of several runs become one, and a page.

usage: gpu_report_test.py SOURCE
"""
import pathlib
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(SOURCE / "tests" / "gpu"))
from gpu_check import archive, main, page, results  # noqa: E402


class TheReport(unittest.TestCase):
    RUN = {"date": "2026-01-02", "driver": "13.0", "kernel_module": "580.1", "workloads": "cuda",
           "versions": {"torch": "2.11.0"}}
    BITS = {"part": 4, "result": "pass", "why": "", "numbers": {"tensors": 7}, "seconds": 1.5, "run": 0}
    SPEED = {"part": 7, "result": "not run", "why": "late", "numbers": {}, "seconds": 0.0, "run": 0}
    FIRST = {"device": "GPU X", "commit": "c1", "runs": [RUN], "checks": {"bits": BITS, "speed": SPEED}}
    LATER = {**FIRST, "runs": [{**RUN, "date": "2026-01-03"}],
             "checks": {"bits": {**BITS, "result": "skip", "why": "no device"},
                        "speed": {**SPEED, "result": "fail", "why": "goal | missed",
                                  "numbers": {"stats.gpu.f32": 1.23456, "stats.gpu.f32_rate": 3.1}}}}
    STEP = {**BITS, "numbers": {"launches": 1.01, "stats": 1.1, "every_kernel": 1.2, "every_kernel_values": 0}}

    def setUp(self):
        self.text = (SOURCE / "docs" / "gpu-results.md").read_text()

    def test_results_of_several_runs_merge_in_any_order(self):
        merged = results.merge(self.FIRST, self.LATER)
        self.assertEqual(merged, results.merge(self.LATER, self.FIRST))
        self.assertEqual(merged, results.merge(merged, self.LATER))
        self.assertEqual([run["date"] for run in merged["runs"]], ["2026-01-02", "2026-01-03"])
        self.assertEqual({name: (check["result"], check["run"]) for name, check in merged["checks"].items()},
                         {"bits": ("pass", 0), "speed": ("fail", 1)})
        passed = {**self.LATER, "checks": {"speed": {**self.LATER["checks"]["speed"], "result": "pass"}}}
        # Until there is another commit.
        self.assertEqual(results.merge(passed, merged)["checks"]["speed"]["result"], "fail")

    def test_the_page_holds_goals_and_failures_and_keeps_the_rest(self):
        other = {**self.FIRST, "commit": "c0", "runs": [{**self.RUN, "date": "2025-12-31"}],
                 "checks": {"outputs": {**self.BITS, "result": "fail", "why": "an old failure"},
                            "bits": {**self.BITS, "result": "fail", "why": "mended since"}, "GPT-like step": self.STEP}}
        made = page.page(self.text, [results.merge(self.FIRST, self.LATER), other])
        self.assertEqual(made, page.page(made, [other, results.merge(self.LATER, self.FIRST)]))
        self.assertIn("- GPU X, c1: 2026-01-03, driver 580.1, torch 2.11.0: 1 pass, 1 fail\n", made)
        self.assertLess(made.index("GPU X, c1"), made.index("GPU X, c0"))
        self.assertIn("| speed | c1 | goal \\| missed |\n", made)
        self.assertIn("| outputs | c0 | an old failure |\n", made)
        self.assertNotIn("mended since", made)  # passed at c1
        for cells in "| <= 1.1 | 1.235, missed |", "| <= 1.02 | 1.01 |", "| <= 1.05 | 1.1, missed |", "| >= 3 | 3.1 |":
            self.assertIn(cells, made)
        self.assertIn("| values of every kernel | <= 1.25 | never |", made)  # no value came
        self.assertNotIn("has not run on GPU hardware", made)
        self.assertIn("## Open questions", made)
        self.assertEqual(page.page(made, []), page.page(self.text, []))
        self.assertIn("has not run on GPU hardware", page.page(made, []))

    def test_predictions_are_the_timing_model_s(self):
        sys.path.insert(0, str(SOURCE / "tests" / "bench"))
        import gpu_model

        line, = (line for line in self.text.splitlines() if line.startswith("| `stats` |"))
        for design in "tickets", "log and fold, dedupe":
            self.assertIn("%.3f" % gpu_model.predict("H100", design, "f32")[1], line)

    def test_the_page_is_short(self):
        self.assertLessEqual(len(self.text.split()), 1200)

    def test_results_are_taken_from_archives_too(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            results.write(folder / "work", self.FIRST)
            archive.Archive(folder / archive.NAME, folder / "work").refresh()
            self.assertEqual(results.load(folder / archive.NAME), results.load(folder / "work"))

    def test_the_page_in_the_repository_is_that_of_its_results(self):
        found = list(results.load(SOURCE / "docs" / "gpu-results").values())
        self.assertEqual(self.text, page.page(self.text, found))
        self.assertEqual("**convtrace has not run on GPU hardware yet.**" in self.text, not found)

    def test_results_are_taken_from_folders_but_not_those_of_a_double(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "docs").mkdir()
            (folder / "docs" / "gpu-results.md").write_text(self.text)
            results.write(folder / "one", self.FIRST)
            results.write(folder / "two", self.LATER)
            results.write(folder / "two", {**self.LATER, "device": "Fake device 0"})
            self.assertEqual(main.report(folder, [folder / "one", folder / "two"]), 0)
            taken = results.load(folder / "docs" / "gpu-results")
            self.assertEqual(taken, {"gpu-x-c1.json": results.merge(self.FIRST, self.LATER)})
            self.assertIn("2026-01-03", (folder / "docs" / "gpu-results.md").read_text())
            self.assertEqual(main.report(folder, [folder / "docs"]), 2)  # there is none


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
