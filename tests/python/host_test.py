"""The program is the host: what it prints, how it ends and which files it leaves are the same plain and under the preload,
whatever it asks of its own objects; and tracing survives every legal program. Needs the built libraries and programs
(CONVTRACE_BUILD)."""
import difflib
import importlib.util
import json
import os
import subprocess
import sys
import unittest

from preload_test import SHOW, ProgramTest
from short_run import long


class HostTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.base = self.folder
        self.said = os.path.join(self.base, "said")  # what convtrace says

    def run_in(self, place, name, *arguments, preload, **settings):
        """Runs a program in a folder of its own, which is then searched for traces and records."""
        self.folder = os.path.join(self.base, place)
        os.makedirs(self.folder)
        if preload:
            settings.setdefault("CONVTRACE_LOG_FILE", self.said)
        return self.run_program(os.path.join("host", name), *arguments, preload=preload, **settings)

    def files(self):
        """@return {name: content} of the files that the program left, without traces."""
        found = {}
        for root, _, names in os.walk(self.folder):
            for name in names:
                if not name.endswith(".ctrace"):
                    with open(os.path.join(root, name), "rb") as file:
                        found[os.path.relpath(os.path.join(root, name), self.folder)] = file.read()
        return found

    def log(self):
        if not os.path.exists(self.said):
            return ""
        with open(self.said) as file:
            return file.read()

    def check_equal(self, plain, traced, why=""):
        if plain != traced:
            changed = list(difflib.unified_diff(plain.splitlines(), traced.splitlines(), "plain", "traced", n=0, lineterm=""))
            self.fail("\n".join([*changed[:40], why[-2000:]]))

    def check_same(self, name, *arguments, status=0, log="", **settings):
        """@param log  a pattern of the complete log that convtrace may write. @return the traced run"""
        plain = self.run_in("plain", name, *arguments, preload=False)
        left = self.files()
        traced = self.run_in("traced", name, *arguments, preload=True, **settings)
        self.assertEqual(plain.returncode, status, plain.stderr)
        self.check_equal(plain.stdout, traced.stdout, traced.stderr)
        self.check_equal(plain.stderr, traced.stderr)
        self.assertEqual(plain.returncode, traced.returncode)
        self.assertEqual(left, self.files())
        self.assertRegex(self.log(), r"\A%s\Z" % log)
        return traced

    def command(self, *words, expect=0, **options):
        """Runs a command of convtrace. @return its output"""
        done = subprocess.run([SHOW, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              cwd=self.folder, timeout=300, **options)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout

    def check_silent(self, trace):
        self.assertRegex(self.command("check", trace), r"\ANothing found in ")

    def values(self, trace):
        return [r for r in self.records(trace) if r["record"] == "stats"]

    def losses(self, trace):
        return [float(r["mean"]).hex() for r in self.values(trace) if r["slot"] == "loss"]


class Objects(HostTest):
    shared = True

    def test_a_program_finds_its_objects_as_they_are_without_us(self):
        """Weak references, attributes, hooks, counts of references, pickled and saved bytes, swaps, deaths."""
        self.shared = False  # a program that begins as most do
        self.check_same("identity.py")

    def test_a_program_s_tensors_and_modes_are_asked_for_no_function_more(self):
        self.check_same("torch_function.py")

    def test_a_program_s_containers_and_optimizers_run_no_more_often(self):
        self.check_same("containers.py")
        trace, = self.traces()
        values = self.values(trace)
        # The tensors in the containers themselves are recorded.
        self.assertEqual(sum(r["scope"].endswith("passes") and r["slot"].startswith("input:") for r in values), 16)


class Tracebacks(HostTest):
    shared = True

    def test_exceptions_show_no_frame_of_ours(self):
        # A collective that failed has no output to wait for.
        self.check_same("tracebacks.py", "errors", status=1, log=r"convtrace\[\d+\] W trace: CT-1106 .* 1 not recorded .*\n")

    def test_stacks_and_levels_of_warnings_are_those_of_the_program(self):
        self.check_same("tracebacks.py", "frames")

    def test_the_error_of_a_recursion_without_end(self):
        self.check_same("deep.py", status=1)
        trace, = self.traces()
        self.assertEqual(len(self.losses(trace)), 3)

    def test_anomaly_mode_prints_the_program_s_stack_of_a_forward_call(self):
        self.check_same("anomaly.py")


class Swapped(HostTest):
    @long("test_sharded_models_are_converted_on_two_ranks")
    def test_sharded_models_are_converted_on_one_rank(self):
        self.check_same("swapped.py", "1")

    def test_sharded_models_are_converted_on_two_ranks(self):
        self.check_same("swapped.py", "2")
        self.assertEqual(len(self.traces()), 2)

    @unittest.skipUnless(importlib.util.find_spec("torchao"), "%s has no torchao" % sys.executable)
    def test_quantised_models_are_moved_swapped_and_copied(self):
        self.check_same("quantised.py")
        self.assertEqual(len(self.traces()), 1)


class Legal(HostTest):
    shared = True

    def test_values_that_cannot_be_read_are_counted_and_training_is_observed_on(self):
        traced = self.check_same("legal.py")
        trace, = self.traces()
        recorded = iter(self.losses(trace))
        for line in traced.stdout.splitlines():
            case, loss = line.split()[0], line.split()[-1]
            self.assertIn(loss, recorded, case)  # in their order: the iterator is used up to the loss
        lost = json.loads(self.command("info", "--json", trace))["lost"]
        self.assertGreater(lost["tensor kind not supported"], 0)
        self.assertEqual(list(lost), ["tensor kind not supported"])
        self.assertRegex(self.command("info", trace), r"\nlost +[\d,]+: tensor kind not supported\n")


    def test_functions_that_are_replaced_are_operators_in_torchscript(self):
        self.check_same("scripted.py")


class Correct(HostTest):
    """Programs without a fault: they are as without convtrace, and `convtrace check` tells of no fault."""

    shared = True

    def check_correct(self, *words):
        self.check_same(*words)
        trace, = self.traces()
        report = json.JSONDecoder().raw_decode(self.command("check", "--json", "-", trace))[0]
        # That all data are one batch is true, and a hint.
        self.assertLessEqual({(f["level"], f["id"]) for f in report["findings"]}, {("hint", "same-batch")}, report["findings"])
        self.assertGreater(report["values"], 50)

    def test_a_look_before_a_training_whose_learning_rate_begins_at_0(self):
        self.check_correct("repeating.py", "looked-at-first")

    def test_a_head_on_frozen_features_whose_loss_has_signs_for_gradients(self):
        self.check_correct("repeating.py", "distances")

    def test_a_head_on_frozen_features_whose_loss_has_margins(self):
        self.check_correct("repeating.py", "margins")

    def test_gradients_of_inputs_while_more_and_more_models_live(self):
        self.check_correct("attributions.py")


    def test_a_working_directory_that_was_removed_and_norms_that_are_only_printed(self):
        self.check_correct("gone.py")


class Names(HostTest):
    def test_each_living_model_has_its_own_names(self):
        self.check_same("names.py")
        trace, = self.traces()
        self.check_silent(trace)
        values = self.values(trace)

        def scopes(slot, wanted):
            return {r["scope"] for r in values if r["slot"] == slot and wanted(r["scope"])}

        self.assertEqual(len(scopes("grad:weight", lambda scope: scope.split(".")[-1] == "a")), 24)
        self.assertEqual(len(scopes("grad:weight", lambda scope: scope.startswith("Sequential") and scope.endswith(".2"))), 24)
        self.assertEqual(len(scopes("grad:scale", lambda scope: scope.startswith("Weighted"))), 40)
        # Criteria without weights are one place, and so is the layer that all of them call.
        shared = {"MSELoss": 40, "Linear": 80}
        for scope, count in shared.items():
            self.assertEqual({r["call"] for r in values if (r["scope"], r["slot"]) == (scope, "output:0")}, set(range(count)))
        self.assertEqual({r["call"] for r in values if r["scope"] not in shared}, {0})


class Lazy(HostTest):
    """A parameter that was not written yet has no value: it is neither checked nor compared."""

    def test_unwritten_memory_is_no_nan_and_no_difference(self):
        self.check_same("lazy.py")
        first, = self.traces()
        self.check_silent(first)
        other = os.path.join(self.folder, "other.ctrace")
        self.run_program(os.path.join("host", "lazy.py"), CONVTRACE_OUTPUT=other)
        self.assertRegex(self.command("diff", first, other), r"\AIDENTICAL\b")
        whole = self.values(other)
        last = [r for r in whole if r["scope"] == "first" and r["slot"] == "param:bias"][-1]
        self.assertEqual((last["nan"], last["count"]), (0, 1200))  # it is recorded once there is something to record

    @long("test_unwritten_memory_is_no_nan_and_no_difference, which compares two runs")
    def test_it_repeats(self):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "host", "lazy.py")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CONVTRACE_") and k != "LD_PRELOAD"}
        said = self.command("repeat", "--", sys.executable, program, env=dict(environment, OMP_NUM_THREADS="1"),
                            stdin=subprocess.DEVNULL)
        self.assertIn("\nREPEATS: 2 runs are equal to the bit\n", said)


class Cost(HostTest):
    """The time of a step does not depend on the number of other objects, alive or dead."""

    KINDS = "models", "trained-models", "criteria", "optimizers", "threads", "forks", "models-in-a-child"

    def test_a_step_takes_the_same_beside_any_number_of_things(self):
        left = self.KINDS
        for attempt in range(4):  # other programs take their share of the machine
            done = self.run_in("traced-%d" % attempt, "flat.py", *left, preload=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            times = {kind: [float(word) for word in rest] for kind, *rest in map(str.split, done.stdout.splitlines())}
            self.assertEqual(tuple(times), left)
            left = tuple(kind for kind, (none, many, gone) in times.items() if max(many, gone) > 1.5 * none)
            if not left:
                return
        self.fail("it grows beside %s: microseconds with none, many, and when these are gone: %s" % (", ".join(left), times))


if __name__ == "__main__":
    unittest.main()
