"""A wrong or not finite gradient is reported at the op or module that made it in the backward pass, not at the one that received
it: by convtrace-diff, check and show --nan alike. Needs the built libraries and programs (CONVTRACE_BUILD)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(os.environ["CONVTRACE_BUILD"]) / "bin"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CONVTRACE_")} | {"OMP_NUM_THREADS": "1"}
PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "blame.py"

# Kind of fault -> (module, op, slot, whether that is only likely) of the gradient's maker, and the module that received it.
# There is no receiver if the maker has a record of its own.
MADE = {
    "swish": (("blocks.1.forward_part", "blame::swishBackward", "grad_input:0", False), None),
    "attention": (("blocks.1.attention", None, None, True), "blocks.1.attention.qkv"),
    "scale": (("blocks.1", "ScaleBackward", "grad_output:0", False), "blocks.1.attention"),
    "norm": (("blocks.1.norm", None, "grad_input:0", False), "blocks.0"),
    "loss": (("Loss", None, "grad_input:0", False), ""),
}
RUNS = [("swish", "loss"), ("attention", "swish"), ("scale", "attention"), ("norm", "norm")]  # wrong, and not finite


class Blame(unittest.TestCase):
    def setUp(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("needs PyTorch")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def traced(self, wrong, nan="none"):
        trace = self.folder / f"{wrong}-{nan}.ctrace"
        done = subprocess.run([BIN / "convtrace", "run", "--output", trace, "--", sys.executable, PROGRAM, wrong, nan], stderr=subprocess.PIPE,
                              env=ENVIRONMENT, universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return trace

    def report(self, program, *words, codes):
        done = subprocess.run([BIN / program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertIn(done.returncode, codes, done.stderr)
        return done.stdout

    def diff(self, base, trace):
        output = self.folder / "report.json"
        text = self.report("convtrace-diff", base, trace, "--json", output, codes=(0, 1))
        return text, json.loads(output.read_text())

    def of(self, one):
        """@return (module, op, slot, likely) of a gradient's maker, and the gradient's receiver, from a report's place."""
        made = one["made_by"]
        if made is None:
            return (one["scope"], one["op"], one["slot"], False), None
        place = made["place"]
        return (place["scope"], place["op"], place["slot"], made["likely"]), made["received_by"]["scope"]

    def test_who_made_it_is_named_first(self):
        base = self.traced("none")
        for kind, nan in RUNS:
            with self.subTest(wrong=kind, nan=nan):
                expected = MADE[kind]
                trace = self.traced(kind, nan)
                text, report = self.diff(base, trace)
                self.assertEqual((report["root"]["step"], report["root"]["phase"]), (1, "backward"))
                self.assertEqual(self.of(report["root"]), expected)
                headline, = (line for line in text.splitlines() if line.startswith("DIVERGED"))
                self.assertEqual("likely" in headline, expected[0][3])
                if expected[1] is not None:
                    maker, receiver = headline.split(", received by ")
                    self.assertIn(expected[0][0], maker)
                    self.assertIn(expected[1] or "root module", receiver)
                self.check_nan(trace, MADE[nan])
        self.check_right(base)

    def check_nan(self, trace, expected):
        report = json.loads(self.report("convtrace", "check", "--json", "-", trace, codes=(4,)))
        finding, = (one for one in report["findings"] if one["id"] == "nan")
        self.assertEqual((finding["level"], finding["step"]), ("error", 2))
        self.assertEqual(self.of(finding), expected)
        self.assertEqual((finding["scope"], finding["op"], finding["slot"]), expected[0][:3])
        shown = json.loads(self.report("convtrace", "show", "--nan", "--json", trace, codes=(0,)))
        self.assertEqual(shown["birth"]["step"], 2)
        self.assertIsNotNone(shown["reaches"])
        self.assertEqual(self.of({**shown["birth"], "made_by": shown["made_by"]}), expected)

    def check_right(self, base):
        """Nothing is reported for the same model computed in another way, and for the base itself."""
        plain = self.traced("plain")
        text, report = self.diff(base, plain)
        self.assertIsNone(report["root"], text)
        for trace in (base, plain):
            self.assertIn("Nothing found", self.report("convtrace", "check", trace, codes=(0,)))
            self.assertIsNone(json.loads(self.report("convtrace", "show", "--nan", "--json", trace, codes=(0,)))["birth"])


if __name__ == "__main__":
    unittest.main()
