#!/usr/bin/env python3
"""The judge of the cases: what counts as right, as a neighbour, as told and as missed."""
import unittest

import judge
from cases import CASES, SAMPLE, Case

MODULES = ["", "embed", "blocks", "blocks.2", "blocks.2.fc1", "blocks.2.act", "blocks.3", "blocks.3.ln2", "blocks.3.fc1", "blocks.3.act",
           "blocks.3.drop", "head"]


def report(step=0, phase="forward", scope="blocks.3.drop", **more):
    return {"verdict": "diverged", "root": {"step": step, "phase": phase, "scope": scope, "slot": "output:0"}, **more}


def word(fault, said, precision="f32"):
    return judge.judge(Case("fault", "gpt", precision, "plain", fault), said, MODULES)[0]


class PlaceTestCase(unittest.TestCase):
    def test_the_module_the_phase_and_the_step_have_to_agree(self):
        self.assertEqual(word("dropout", report()), "right")
        self.assertEqual(word("dropout", report(step=1)), "wrong")
        self.assertEqual(word("dropout", report(phase="backward")), "wrong")
        self.assertEqual(word("columns", report(step=3, scope="blocks.3.fc1")), "right")

    def test_neighbours_are_parents_what_is_inside_and_what_runs_next(self):
        for scope, said in {"blocks.3": "neighbour", "blocks.3.act": "neighbour", "head": "neighbour", "blocks.3.fc1": "wrong",
                            "blocks.2": "wrong", "blocks": "wrong", "": "wrong"}.items():
            self.assertEqual(word("dropout", report(scope=scope)), said, scope)
        for scope, said in {"blocks.2": "neighbour", "blocks.2.act": "neighbour", "blocks.2.fc1": "wrong", "blocks.3.ln2": "neighbour"}.items():
            self.assertEqual(word("detached", report(step=3, phase="backward", scope=scope)), said, scope)

    def test_who_made_the_value_counts_and_not_who_received_it(self):
        said = report(scope="head")
        said["root"]["made_by"] = {"place": {"scope": "blocks.3.drop"}}
        self.assertEqual(word("dropout", said), "right")
        said["root"]["made_by"] = {"place": None}
        self.assertEqual(word("dropout", said), "neighbour")

    def test_of_a_loss_or_an_update_no_module_is_asked(self):
        self.assertEqual(word("smoothing", report(phase="loss", scope="")), "right")
        self.assertEqual(word("beta2", report(step=1, phase="optimizer", scope="head")), "right")


class WordTestCase(unittest.TestCase):
    def test_a_fact_tells_what_values_do_not(self):
        same = {"verdict": "same", "root": None, "first_bit_difference": {}, "facts": [
            {"name": "betas", "base": "(0.9, 0.95)", "cand": "(0.9, 0.999)", "step": 0, "first": ""},
            {"name": "p", "base": "0.1", "cand": "0.12", "step": 0, "first": "blocks.2.drop"}]}
        self.assertEqual(word("beta2", same), "told")
        self.assertEqual(word("dropout", same), "missed")  # of another module
        self.assertEqual(word("beta2", same | {"facts": []}), "missed")
        self.assertEqual(word("lr", same), "missed")
        self.assertEqual(word("beta2", same | report(step=2)), "told")

    def test_of_rounding_alone_only_the_verdict_counts(self):
        case = Case("design", "gpt", "f32", "split")
        same = {"verdict": "same", "root": None, "first_bit_difference": {}}
        self.assertEqual(judge.judge(case, same, MODULES)[0], "same")
        self.assertEqual(judge.judge(case, same | {"agreement": "rounding"}, MODULES)[0], "rounding")
        self.assertEqual(judge.judge(case, same | {"first_bit_difference": None}, MODULES)[0], "identical")
        self.assertEqual(judge.judge(case, report(), MODULES)[0], "diverged")


class CasesTestCase(unittest.TestCase):
    def test_there_are_thirty_pairs_of_rounding_and_thirty_kept_apart(self):
        kinds = [case.kind for case in CASES]
        self.assertEqual((kinds.count("design"), kinds.count("held_out")), (30, 30))

    def test_names_are_unique_and_the_sample_is_part_of_them(self):
        names = [case.candidate for case in CASES]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual(SAMPLE, set(names))


if __name__ == "__main__":
    unittest.main()
