"""Common training loops under the real preload: steps are updates, evaluation changes no key of
training, and clipping is recognized. Needs the built libraries and programs (CONVTRACE_BUILD)."""
import glob
import json
import os
import subprocess
import unittest

from preload_test import BUILD, ProgramTest

DIFF = os.path.join(BUILD, "bin", "convtrace-diff")
SHOW = os.path.join(BUILD, "bin", "convtrace")
UPDATES = 4  # of programs/updates.py


class LoopTest(ProgramTest):
    shared = True

    def trace(self, name, loop, *arguments, same_bits=True):
        """Traces a loop. `same_bits`: an untraced run must print the same. @return the trace's path"""
        path = os.path.join(self.folder, name + ".ctrace")
        arguments = [str(one) for one in arguments]
        traced = self.run_program("updates.py", loop, *arguments, CONVTRACE_OUTPUT=path)
        self.assertEqual((traced.returncode, traced.stderr), (0, ""))
        if same_bits:
            plain = self.run_program("updates.py", loop, *arguments, preload=False)
            self.assertEqual(traced.stdout, plain.stdout)
        self.assertEqual(glob.glob(path), [path])
        self.check_clean(path)
        self.printed = [[float.fromhex(one) for one in json.loads(line.replace("'", '"'))]
                        for line in traced.stdout.splitlines()]
        return path

    def values(self, trace):
        return [r for r in self.records(trace) if r["record"] == "stats"]

    def steps(self, trace):
        """@return the steps with an update."""
        return sorted({r["step"] for r in self.values(trace) if r["phase"] == "optimizer"})

    def compare(self, base, cand, *options, expect=0):
        done = subprocess.run([DIFF, base, cand, "--json", "-", *options], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, expect, done.stderr)
        return json.loads(done.stdout)

    def check_same_training(self, base, cand):
        """Every compared value of training has an equal partner; values that only one run has belong to evaluation."""
        report = self.compare(base, cand)
        self.assertEqual((report["verdict"], report["agreement"], report["incomplete_why"], report["facts"]),
                         ("same", "identical", [], []))
        counts = {name: count for name, count in report["counts"].items() if count}
        self.assertLessEqual(set(counts), {"identical", "unmatched"})
        of_training = [sum(r["phase"] != "evaluation" and not r["slot"].startswith("buffer_initial:")
                           for r in self.values(trace)) for trace in (base, cand)]
        self.assertEqual(of_training[0], of_training[1])
        evaluated = [sum(r["phase"] == "evaluation" for r in self.values(trace)) for trace in (base, cand)]
        self.assertEqual(counts.get("unmatched", 0), abs(evaluated[0] - evaluated[1]))
        self.assertEqual(counts["identical"], of_training[0] + min(evaluated))


class EvaluationTest(LoopTest):
    def check_loop(self, loop, steps=UPDATES, passes=(2,)):
        base = self.trace("0", loop, 0)
        printed = self.printed
        self.assertEqual(self.steps(base), list(range(steps)))
        for number in passes:
            self.check_same_training(base, self.trace(str(number), loop, number, same_bits=False))
            self.assertEqual(self.printed, printed)


class Evaluation(EvaluationTest):
    def test_passes_between_updates_change_nothing_of_training(self):
        self.check_loop("plain", passes=(2, 5))
        self.check_same_training(*(os.path.join(self.folder, n + ".ctrace") for n in "52"))

    def test_passes_that_draw_random_numbers_change_training(self):
        base, cand = self.trace("0", "drawing", 0), self.trace("2", "drawing", 2)
        report = self.compare(base, cand, expect=1)
        self.assertEqual((report["root"]["step"], report["root"]["phase"]), (0, "forward"))
        self.assertEqual({(f["kind"], f["name"], f["step"]) for f in report["facts"]},
                         {("generator", "torch", 0), ("module", "training in evaluation", 0)})

    def test_gradient_accumulation(self):
        self.check_loop("accumulation")

    def test_each_update_of_a_gan_is_a_step(self):
        self.check_loop("gan", passes=(1,))
        base = self.values(os.path.join(self.folder, "0.ctrace"))
        self.assertEqual({r["step"] for r in base if r["phase"] == "evaluation"}, {0, 2})  # the fakes

    def test_rollouts_belong_to_the_update_that_learns_from_them(self):
        self.check_loop("ppo", passes=(1,))
        base = self.values(os.path.join(self.folder, "0.ctrace"))
        acted = {(r["step"], r["call"]) for r in base if r["phase"] == "evaluation"}
        self.assertEqual(acted, {(step, call) for step in (0, 2) for call in range(3)})

    def test_a_model_tried_before_there_is_an_optimizer(self):
        """The first calls look like inference; the diff subtracts their steps."""
        base, cand = self.trace("0", "early", 0), self.trace("3", "early", 3)
        report = self.compare(base, cand)
        self.assertEqual(report["step_offset"]["steps"], 3)
        self.assertEqual((report["verdict"], report["steps"]), ("same", UPDATES))


class MoreLoops(EvaluationTest):
    def test_sanity_passes_of_lightning(self):
        self.check_loop("lightning")

    def test_a_target_network(self):
        self.check_loop("dqn")


class Resumed(LoopTest):
    def traces(self, loop):
        checkpoint = os.path.join(self.folder, "checkpoint.pt")
        whole = self.trace("whole", loop, 0, checkpoint, same_bits=False)
        losses = self.printed
        rest = self.trace("rest", loop, 0, checkpoint)
        self.assertEqual(self.printed, losses[2:])
        return whole, rest

    def check_rest(self, report, steps):
        self.assertEqual((report["verdict"], report["steps"], report["incomplete_why"]), ("same", UPDATES - 2, []))
        self.assertEqual(report["step_offset"]["steps"], steps)
        self.assertLessEqual({name for name, count in report["counts"].items() if count},
                             {"identical", "unmatched"})

    def test_it_is_aligned_by_the_optimizers_counter(self):
        whole, rest = self.traces("resumed")
        report = self.compare(whole, rest)
        self.check_rest(report, -2)
        self.assertIn("0 | 2", report["step_offset"]["why"])
        self.check_rest(self.compare(rest, whole), 2)
        self.compare(whole, rest, "--step-offset", "0", expect=1)

    def test_without_the_optimizers_state_it_is_aligned_by_its_first_weights(self):
        whole, rest = self.traces("resumed")
        lost = self.trace("lost", "resumed", 1, os.path.join(self.folder, "checkpoint.pt"), same_bits=False)
        for base, steps, counted in (rest, 0, "2 | 0"), (whole, -2, None):
            report = self.compare(base, lost, expect=1)
            self.assertEqual(report["step_offset"]["steps"] if report["step_offset"] else 0, steps)
            self.assertEqual((report["cause"]["rule"], report["root"]["phase"]), ("optimizer-state", "optimizer"))
            self.assertIn(counted or "without their state", report["cause"]["text"])

    def test_without_a_counter_its_first_weights_say_it(self):
        whole, rest = self.traces("resumed_without_counter")
        report = self.compare(whole, rest)
        self.check_rest(report, -2)
        self.assertIn("first weights of the candidate are those that the baseline has after 2 steps", report["step_offset"]["why"])
        self.check_rest(self.compare(rest, whole), 2)
        kept = self.compare(whole, rest, "--step-offset", "0", expect=1)
        self.assertIsNone(kept["cause"])
        self.assertIn("--step-offset -2", kept["next"][0])
        report = self.compare(whole, rest, "--step-offset", "-2")
        self.check_rest(report, -2)
        self.assertIn("--step-offset", report["step_offset"]["why"])


class Clipping(LoopTest):
    def check_function(self, number, told):
        trace = self.trace("clipped", "clipped", number)
        done = subprocess.run([SHOW, "show", "--norms", "--json", trace], stdout=subprocess.PIPE, check=True)
        steps = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(steps), UPDATES)
        for step, (before, behind, answer) in zip(steps, self.printed):
            self.assertAlmostEqual(step["unclipped_norm"], before, delta=1e-9 * before)
            self.assertAlmostEqual(step["gradient_norm"], behind, delta=1e-9 * before)
            self.assertAlmostEqual(step["clip_factor"], behind / before, delta=1e-9)
            self.assertLess(step["clip_factor"], 1)
            self.assertEqual(step["clip_norms"], [answer] if told else [])
        slots = {r["slot"] for r in self.values(trace) if r["phase"] == "backward"}
        self.assertEqual("grad_norm" in slots, told)
        self.assertLess({"grad:weight", "grad_unclipped:weight"}, slots)

    def test_by_norm(self):
        self.check_function(0, True)

    def test_by_value(self):
        self.check_function(1, False)

    def test_by_a_norm_that_was_taken_before(self):
        self.check_function(2, True)


if __name__ == "__main__":
    unittest.main()
