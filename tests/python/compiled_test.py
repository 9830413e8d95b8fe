"""What is recorded inside regions that torch.compile makes: CONVTRACE_COMPILED."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from preload_test import BUILD, ProgramTest, torch
from support import SKIPPED

DIFF = os.path.join(BUILD, "bin", "convtrace-diff")
if not os.path.exists(DIFF):
    print("skipped: %s is not built" % DIFF)
    sys.exit(SKIPPED)
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    print("skipped: torch before 2.6")
    sys.exit(SKIPPED)


class RegionTest(ProgramTest):
    """Programs of one class share Inductor's cache: the first run of a model is cold, the others are warm."""

    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.cache)

    def run_model(self, *arguments, **settings):
        """@return (what the program printed, path of the trace or None)"""
        name = "-".join((*arguments, str(len(self.traces())))) + ".ctrace"
        preload = "CONVTRACE_COMPILED" in settings
        if preload:
            settings["CONVTRACE_OUTPUT"] = os.path.join(self.folder, name)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = self.cache
        self.addCleanup(os.environ.pop, "TORCHINDUCTOR_CACHE_DIR", None)
        done = self.run_program("compiled.py", *arguments, preload=preload, **settings)
        self.assertEqual(done.returncode, 0, done.stderr)
        if preload:
            self.check_clean(settings["CONVTRACE_OUTPUT"])
        self.stderr = done.stderr
        return json.loads(done.stdout), settings.get("CONVTRACE_OUTPUT")

    def compare(self, base, cand):
        report = os.path.join(self.folder, "report.json")
        done = subprocess.run([DIFF, base, cand, "--json", report],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        with open(report) as file:
            return json.load(file), done.stdout

    def check_model(self, name, outputs, gradients):
        """@param outputs  modules whose outputs a run that is not compiled has as well; `gradients`: whose outputs' gradients
        """
        cold, first = self.run_model(name, CONVTRACE_COMPILED="all")
        plain, _ = self.run_model(name)
        warm, second = self.run_model(name, CONVTRACE_COMPILED="all")
        self.assertEqual((cold, warm), (plain, plain))
        report, text = self.compare(first, second)
        self.assertEqual((report["verdict"], report["counts"]["unmatched"]), ("same", 0), text)
        calls, third = self.run_model(name, CONVTRACE_COMPILED="calls")
        self.assertEqual(calls, plain)
        _, eager = self.run_model(name, "eager", CONVTRACE_COMPILED="calls")
        for trace in first, third:
            report, text = self.compare(eager, trace)
            self.assertEqual(report["verdict"], "same", text)
            self.assertEqual([b["scope"] for b in report["births"]], [], text)
        both = [{(r["scope"], r["slot"], r["phase"]) for r in self.records(trace) if r["record"] == "stats" and not r.get("op")}
                for trace in (eager, first)]
        self.assertLessEqual({*((one, "output:0", "forward") for one in outputs),
                              *((one, "grad_output:0", "backward") for one in gradients)}, both[0] & both[1])


class Models(RegionTest):
    def test_a_transformer(self):
        self.check_model("gpt", *2 * [["h.0.qkv", "h.0.mlp.up", "h.1.mlp.down"]])


class MoreModels(RegionTest):
    def test_views_and_a_layer_that_is_called_twice(self):
        self.check_model("views", ["a", "b"], ["b"])

    def test_two_regions(self):
        self.check_model("breaks", ["a", "b"], ["b"])

    def test_convolutions(self):
        self.check_model("resnet", *2 * [["blocks.0.conv", "blocks.1.conv", "stem"]])

    def test_cells(self):
        self.check_model("lstm", ["head"], ["head"])

    def test_layers_that_share_a_region(self):
        self.check_model("shared", ["layers.0.up", "layers.1.up", "layers.2.down"], [])

    def test_shapes_that_change(self):
        self.check_model("dynamic", [], [])


class FaultTest(RegionTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bases = {}

    def check_fault(self, model, kind, number, *modules):
        """@param modules  in one of which the root must lie; none: the faulty kernel's operand must be the root"""
        base = os.path.join(self.cache, model + ".ctrace")
        if not os.path.exists(base):
            shutil.move(self.run_model(model, CONVTRACE_COMPILED="all")[1], base)
        _, cand = self.run_model(model, kind, str(number), CONVTRACE_COMPILED="all")
        said = next(line for line in self.stderr.splitlines() if line.startswith("fault: ")).split()[1:]
        report, text = self.compare(base, cand)
        self.assertEqual(report["verdict"], "diverged", text)
        root = report["root"]
        if modules:
            self.assertIn(root["scope"], modules, (said, text))
        else:
            self.assertEqual([root["kernel"], root["slot"]], [said[0], "output:" + said[1]], text)
            self.assertEqual(root["generated"]["kernel"], said[0])
            self.assertIn(said[0], text)


class Faults(FaultTest):
    def test_a_kernel_of_the_backward_pass(self):
        self.check_fault("gpt", "scale", 9)

    def test_a_write_that_is_dropped(self):
        self.check_fault("views", "drop", 1)

    def test_a_node_that_is_lowered_wrong(self):
        self.check_fault("gpt", "graph", 1, "h.0.before", "h.0.qkv")


class MoreFaults(FaultTest):
    def test_each_kernel(self):
        for number in range(8):
            with self.subTest(number):
                self.check_fault("gpt", "scale", number)


if __name__ == "__main__":
    unittest.main()
