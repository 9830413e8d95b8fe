"""Facts of real programs under the real preload library, and their report by convtrace-diff."""
import json
import os
import subprocess
import sys
import unittest

from preload_test import BUILD, SKIPPED, ProgramTest

DIFF = os.path.join(BUILD, "bin", "convtrace-diff")
if not os.path.exists(DIFF):
    print("skipped: %s is not built" % DIFF)
    sys.exit(SKIPPED)

BLOCK = '''
from torch import nn


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.lin, self.drop = nn.Linear(4, 4), nn.Dropout(dropout)

    def forward(self, x):
        return x + self.drop(self.lin(x))
'''


class FactRuns(ProgramTest):
    shared = True

    def trace(self, name, *options, **settings):
        path = os.path.join(self.folder, name + ".ctrace")
        done = self.run_program("facts.py", *options, CONVTRACE_OUTPUT=path, **settings)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return path

    def facts(self, *options, base=()):
        """@return (report's facts as tuples, whole report, text) of a run compared with one with these options."""
        report = os.path.join(self.folder, "report.json")
        done = subprocess.run([DIFF, self.trace("base", *base), self.trace("cand", *options), "--json", report],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        with open(report) as file:
            whole = json.load(file)
        return [(f["kind"], f["name"], f["base"], f["cand"], f["scope"], f["modules"], f["step"])
                for f in whole["facts"]], whole, done.stdout

    def test_equal_programs_differ_in_nothing(self):
        facts, report, text = self.facts()
        self.assertEqual(facts, [])
        self.assertEqual(report["verdict"], "same")
        self.assertNotIn("the programs differ", text)

    def test_a_modules_setting(self):
        facts, report, text = self.facts("dropout=0.12")
        self.assertIn(("module", "p", "0.1", "0.12", "blocks.*.drop", 3, 0), facts)
        self.assertTrue(report["facts"][0]["configuration"])
        self.assertIn("Dropout p: 0.1 | 0.12 in blocks.*.drop (3 modules)", text)
        root = report["root"]
        self.assertEqual((root["module_class"], root["called"].split(":")[0]), ("Dropout", "facts.py"))
        self.assertRegex(root["forward"], r"^torch/nn/modules/dropout\.py:\d+$")
        self.assertIn("%s (Dropout, torch/nn/modules/dropout.py:" % root["scope"], text)

    def check_shared_weight(self, base, phase, scope):
        _, report, text = self.facts("tied=1", base=(base,))
        self.assertEqual((report["root"]["phase"], report["root"]["scope"]), (phase, scope), text)
        self.assertEqual(report["cause"]["text"], "Linear tied: none | weight=blocks.0.lin.weight in blocks.2.lin")

    def test_a_module_that_shares_its_weight_in_one_run(self):
        self.check_shared_weight("tied=0", "forward", "blocks.2.lin")

    def test_a_gradient_of_a_weight_that_one_run_shares(self):
        self.check_shared_weight("tied=2", "backward", "blocks.0.lin")

    def test_a_setting_of_the_loss_that_extra_repr_does_not_print(self):
        facts, _, _ = self.facts("smoothing=0.1")
        self.assertIn(("module", "label_smoothing", "0.0", "0.1", "CrossEntropyLoss", 1, 0), facts)

    def test_a_setting_of_the_optimizer(self):
        facts, _, text = self.facts("beta=0.96")
        self.assertEqual(facts, [("optimizer", "betas", "(0.9, 0.95)", "(0.9, 0.96)", "optimizer.0.0", 1, 0)])
        self.assertIn("optimizer betas: (0.9, 0.95) | (0.9, 0.96) from step 0", text)

    def test_random_numbers_that_one_run_draws_alone(self):
        facts, _, text = self.facts("draw_at=3", base=())
        self.assertEqual([(f[0], f[1], f[6]) for f in facts], [("generator", "torch", 3)])
        self.assertIn("random numbers of torch differ from step 3 on: one run drew others", text)

    def test_code_that_changed(self):
        folders = []
        for name, source in (("a", BLOCK), ("b", "# a comment\n" + BLOCK.replace("x + self", "x - self"))):
            folders.append(os.path.join(self.folder, name))
            os.mkdir(folders[-1])
            with open(os.path.join(folders[-1], "block.py"), "w") as file:
                file.write(source)
        # The folder of the program is what its own files are named by: the runs stand in different ones.
        traces = []
        for folder in folders:
            above, self.folder = self.folder, folder
            traces.append(self.trace("run"))
            self.folder = above
        done = subprocess.run([DIFF, *traces], stdout=subprocess.PIPE, universal_newlines=True)
        self.assertIn("block.py changed: class Block", done.stdout)
        self.assertNotIn("class Model", done.stdout)

    def test_a_weight_that_the_program_wrote_is_the_root(self):
        _, report, text = self.facts("written=2")
        root = report["root"]
        self.assertEqual((root["step"], root["phase"], root["scope"], root["slot"]), (3, "forward", "blocks.1.lin", "param:bias"))
        self.assertEqual(root["written"], "written by the program between step 2's update and step 3, in the candidate alone")
        self.assertEqual((report["cause"]["rule"], report["next"]), ("written", []))
        self.assertIn("root  written by the program between step 2's update and step 3", text)

    def test_two_models_are_told_apart(self):
        records = self.records(self.trace("gan", "gan=1"))
        scopes = {r["scope"] for r in records if r["record"] == "stats" and r["phase"] == "forward"}
        self.assertLessEqual({"", "head", "blocks.0.lin", "Critic", "Critic.lin", "CrossEntropyLoss"}, scopes)

    def test_modules_are_told_also_outside_the_steps_that_are_recorded(self):
        records = self.records(self.trace("late", CONVTRACE_STEPS="3-"))
        facts = {(r["scope"], r["name"]): r["value"] for r in records if r["record"] == "fact"}
        self.assertEqual(facts["head", "class"], "torch.nn.modules.linear.Linear")
        self.assertEqual(facts[None, "optimizer.0.0.betas"], "(0.9, 0.95)")
        self.assertEqual(min(r["step"] for r in records if r["record"] == "fact" and r["name"] == "rng.torch"), 3)
        base = self.trace("late2", CONVTRACE_STEPS="3-")
        done = subprocess.run([DIFF, base, os.path.join(self.folder, "late.ctrace")], stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
