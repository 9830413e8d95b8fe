"""Records inside regions that torch.compile makes: CONVTRACE_COMPILED."""
import concurrent.futures
import glob
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs"))
import lowering_faults
from preload_test import BUILD, SKIPPED, ProgramTest
from short_run import long

DIFF = os.path.join(BUILD, "bin", "convtrace-diff")
if not os.path.exists(DIFF):
    print("skipped: %s is not built" % DIFF)
    sys.exit(SKIPPED)
VERSION = tuple(map(int, importlib.metadata.version("torch").split(".")[:2]))
if VERSION < (2, 6):
    print("skipped: torch before 2.6")
    sys.exit(SKIPPED)
NAMES_BACKWARD = VERSION >= (2, 13)  # Inductor names nodes behind backward code: 2.6 and 2.9 do not


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
        """@param outputs  modules whose outputs are also recorded in a run that is not compiled
        @param gradients  the same for gradients of outputs"""
        if VERSION < (2, 9) and name in ("gpt", "step"):
            self.skipTest("Inductor 2.6 computes another gradient of an embedding than PyTorch, which is found")
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
                              *((one, "grad_output:0", "backward") for one in gradients if NAMES_BACKWARD)}, both[0] & both[1])


class Models(RegionTest):
    def test_a_transformer(self):
        self.check_model("gpt", *2 * [["h.0.qkv", "h.0.mlp.up", "h.1.mlp.down"]])

    def test_a_function_that_is_a_step_of_training(self):
        """The observer sees no call of a module in such a function, and no optimizer."""
        for steps in "0-", "1":
            _, trace = self.run_model("step", CONVTRACE_COMPILED="calls", CONVTRACE_STEPS=steps)
            records = list(self.records(trace))
            self.assertEqual([r["step"] for r in records if r["record"] == "step"], [0, 1, 2])
            found = {(r["step"], r["phase"]) for r in records if r["record"] == "stats"}
            wanted = [0, 1, 2] if steps == "0-" else [1]
            self.assertLessEqual({(step, phase) for step in wanted for phase in ("forward", "loss", "backward")}, found)
            self.assertEqual({step for step, _ in found}, set(wanted))

    @long("test_a_transformer, the same model; test_a_function_that_is_a_step_of_training")
    def test_a_function_that_is_a_step_has_the_values_of_one_that_is_not_compiled(self):
        self.check_model("step", *2 * [["h.0.qkv", "h.0.mlp.up", "h.1.mlp.down"]])

    def test_what_python_reads_is_what_the_engine_reads(self):
        def records(**settings):
            _, trace = self.run_model("breaks", CONVTRACE_COMPILED="all", **settings)
            found = [r for r in self.records(trace) if r["record"] == "stats"]
            self.assertTrue(any(r["op"] for r in found))
            keys = "step", "phase", "scope", "call", "op", "slot", "capture", "dtype", "shape", "hash"
            return [[r[key] for key in keys] for r in found]

        # The observer reads tensors in Python where stacks are wanted.
        self.assertEqual(records(), records(CONVTRACE_STACKS="all"))


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


class Breaks(RegionTest):
    """Modes that are switched, graphs that break, and custom ops, in regions."""

    def run_models(self, kind, *names):
        trace = os.path.join(self.folder, kind + ".ctrace")
        done = self.run_program("compiled_models.py", kind, *names, CONVTRACE_OUTPUT=trace, TORCHINDUCTOR_CACHE_DIR=self.cache)
        self.assertEqual(done.returncode, 0, done.stderr)
        return trace

    def check_models(self, *names):
        eager, compiled = self.run_models("eager", *names), self.run_models("compiled", *names)
        report, text = self.compare(eager, compiled)
        self.assertIn(report["verdict"], ("same", "rounding"), text)
        shapes = [{(r["step"], r["phase"], r["scope"], r["call"], r["slot"]): r["shape"] for r in self.records(trace)
                   if r["record"] == "stats" and not r["op"] and r["slot"].startswith(("output", "grad_output"))}
                  for trace in (eager, compiled)]
        both = shapes[0].keys() & shapes[1].keys()
        self.assertEqual([one for one in both if shapes[0][one] != shapes[1][one]], [])
        return eager, both

    def test_custom_ops_are_in_their_modules(self):
        eager, both = self.check_models("NoGrad", "Gates", "Shapes")
        self.assertLessEqual({(step, "forward", name, 0, "output:0")
                              for step, name in ((0, "first"), (2, "Gates.first"), (4, "Shapes.second"))}, both)
        faulty = self.run_models("faulty", "NoGrad", "Gates", "Shapes")
        ops = {(r["step"], r["scope"], r["call"]) for r in self.records(faulty)
               if r["record"] == "op" and r["op"] == "compiled_models::gate"}
        self.assertLessEqual({(step, "Gates." + name, 0) for step in (2, 3) for name in ("gate_1", "gate_2")}, ops)
        report, text = self.compare(eager, faulty)
        self.assertEqual((report["verdict"], report["root"]["scope"], report["root"]["op"], report["root"]["slot"]),
                         ("diverged", "Gates.gate_1", "compiled_models::gate", "output:0"), text)

    @long("test_custom_ops_are_in_their_modules, two others of these models")
    def test_each_model_is_what_it_is_without_compilation(self):
        self.check_models("NoGrad", "Autocast", "AutocastBetween", "WithoutGradients", "Checkpointed", "CheckpointedModule",
                          "Disabled", "Broken", "OfANumber", "Gates", "Detached", "Shapes")


class OtherParts(RegionTest):
    """Compiled code beside a model, or compiled in another way."""

    def test_an_optimizer(self):
        self.check_model("optimizer", ["up"], ["down"])

    def test_the_backward_pass_as_it_runs(self):
        self.check_model("autograd", ["up"], [])

    def test_kernels_that_are_tuned(self):
        self.check_model("tuned", ["qkv", "mlp.up"], ["qkv", "mlp.up"])


class SharedCache(RegionTest):
    def test_processes_that_fill_it_at_once(self):
        plain, _ = self.run_model("gpt")
        cache = os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(self.folder, "cache")
        libraries = lambda: sorted(glob.glob(os.path.join(cache, "**", "*.so"), recursive=True))

        def run(name):
            trace = os.path.join(self.folder, name + ".ctrace")
            return trace, self.run_program("compiled.py", "gpt", CONVTRACE_COMPILED="all", CONVTRACE_OUTPUT=trace)

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            runs = list(pool.map(run, "abc"))
        made = libraries()
        self.assertTrue(made)
        runs.append(run("warm"))
        self.assertEqual(libraries(), made)
        for trace, done in runs:
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout), plain)
            self.check_clean(trace)
            self.assertGreater(sum(bool(r.get("op")) for r in self.records(trace) if r["record"] == "stats"), 100)
        for trace, _ in runs[1:]:
            report, text = self.compare(runs[0][0], trace)
            self.assertEqual((report["verdict"], report["counts"]["unmatched"]), ("same", 0), text)


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

    @long("Upstream.test_a_write_through_a_view_that_is_dropped")
    def test_a_write_that_is_dropped(self):
        self.check_fault("views", "drop", 1)

    def test_a_node_that_is_lowered_wrong(self):
        self.check_fault("gpt", "graph", 1, "h.0.before", "h.0.qkv")


class MoreFaults(FaultTest):
    def test_each_kernel(self):
        for number in range(8):
            with self.subTest(number):
                self.check_fault("gpt", "scale", number)


class LoweringTest(FaultTest):
    """Faults of programs/lowering_faults.py."""

    def lowered(self, name, fault):
        """@return path of the trace, {kernel: hash of its source}, what the program said of the fault"""
        lowering = lowering_faults.ALL.get(fault)
        model = lowering.model if lowering else name
        _, trace = self.run_model(model, "lowering", fault, CONVTRACE_COMPILED="all")
        lines = [line.split() for line in self.stderr.splitlines()]
        return trace, {tuple(line[1:3]) for line in lines if line[:1] == ["kernel:"]}, [line[1:] for line in lines if line[:1] == ["fault:"]]

    def base(self, model, kind):
        known = self.bases.get((model, kind))
        if known is None:
            if kind == "eager":
                known = self.run_model(model, "eager", CONVTRACE_COMPILED="all")[1], set()
            else:
                known = self.lowered(model, "good")[:2]
            path = os.path.join(self.cache, "%s-%s.ctrace" % (model, kind))
            shutil.move(known[0], path)
            known = self.bases[model, kind] = path, known[1]
        return known

    def named(self, name):
        """@return "right" if a report names a faulty kernel and its module, "parent" if it names the module around that, else "" """
        fault = lowering_faults.ALL[name]
        good = self.base(fault.model, "good")[1]
        trace, kernels, said = self.lowered(fault.model, name)
        wrong = {kernel for kernel, _ in kernels - good} | {one[0] for one in said}
        self.assertTrue(wrong, name)
        self.reports, best = {}, ""
        for kind in fault.base:
            report, text = self.compare(self.base(fault.model, kind)[0], trace)
            self.reports[kind] = report["root"], text, trace
            region = (report["root"] or {}).get("region") or {"calls": []}
            scopes = [call["scope"] for call in region["calls"][:3] if call["kernel"] in wrong]
            if any(scope in fault.modules for scope in scopes):
                return "right"
            if any(module.rpartition(".")[0] in scopes for module in fault.modules):
                best = "parent"
        return best

    def check(self, trace, *options):
        report = os.path.join(self.folder, "check.json")
        subprocess.run([os.path.join(BUILD, "bin", "convtrace"), "check", trace, "--json", report, *options],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(report) as file:
            return [(one["id"], one["scope"], one["text"]) for one in json.load(file)["findings"]]


class Upstream(LoweringTest):
    def test_a_write_through_a_view_that_is_dropped(self):
        self.assertEqual(self.named("dropped_view"), "right")
        root, text, trace = self.reports["eager"]
        self.assertEqual((root["slot"], root["region"]["border_equal"], root["region"]["calls"][0]["dropped_write"]), ("grad:table", True, True))
        self.assertIn("equal at the border of region 0/0 backward, first differs in " + root["region"]["calls"][0]["kernel"], text)
        found = [text for kind, _, text in self.check(trace) if kind == "dropped-write"]
        self.assertEqual(len(found), 1)
        self.assertIn(root["region"]["calls"][0]["kernel"], found[0])
        self.assertEqual(self.check(self.base("table", "good")[0], "--only", "dropped-write,stale-region"), [])


class Clean(LoweringTest):
    """No finding of the two checks in programs without a fault."""

    def test_programs(self):
        for model in "gpt", "resnet", "lstm", "views", "breaks", "shared", "odd", "dropped", "dynamic", "table", "planes":
            for arguments in (), ("eager",):
                with self.subTest(model, arguments=arguments):
                    trace = self.run_model(model, *arguments, CONVTRACE_COMPILED="all")[1]
                    self.assertEqual(self.check(trace, "--only", "dropped-write,stale-region"), [])


class Lowering(LoweringTest):
    def test_a_reduction_that_gives_garbage(self):
        self.assertEqual(self.named("garbage"), "right")
        self.assertEqual(self.reports["eager"][0]["slot"], "grad:bias")
        self.assertIn("nan", [kind for kind, _, _ in self.check(self.reports["eager"][2])])

    def test_most_are_named(self):
        names = [name for name in lowering_faults.TEN if name != "cast"] + list(lowering_faults.FRESH)
        told = {name: self.named(name) for name in names}
        self.assertTrue(all(told.values()), told)
        self.assertGreaterEqual(list(told.values()).count("right"), 9, told)


if __name__ == "__main__":
    unittest.main()
