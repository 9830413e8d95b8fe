"""Records on request: every operation of chosen modules, the state of optimizers; and the operands of
Triton's kernels and the results of their tuning."""
import os
import sys
import tempfile
import types
import unittest

from support import ObservedTest, torch
from convtrace_observer.base import imports

nn = torch.nn


def put_module(test, name, **content):
    """Imports a stand-in for a module, for the time of a test."""
    before = sys.modules.get(name)
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(content)
    test.addCleanup(*(sys.modules.pop, name, None) if before is None else (sys.modules.__setitem__, name, before))


class Watches(unittest.TestCase):
    def test_of_one_module_all_are_told_and_its_loader_is_as_before(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "watched_by_two.py"), "w", encoding="utf-8") as file:
                file.write("value = 5\n")
            sys.path.insert(0, folder)
            self.addCleanup(sys.path.remove, folder)
            self.addCleanup(sys.modules.pop, "watched_by_two", None)
            told = []
            for _ in range(2):
                imports.watch("watched_by_two", lambda module: told.append(module.value))
            import watched_by_two
            self.assertEqual(told, [5, 5])
            self.assertNotIn("exec_module", vars(watched_by_two.__loader__))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return torch.relu(self.layer(x)) + 1


class Operations(ObservedTest):
    settings = {"CONVTRACE_OPS": "1;re:^never$"}

    def operations(self, **wanted):
        return [(t.op, t.slot) for t in self.fake.tensors(**wanted) if t.op is not None]

    def test_those_inside_a_chosen_module_forward_and_backward(self):
        model = nn.Sequential(Block(), Block())
        x = torch.randn(2, 3, requires_grad=True)
        (model(x).square()).sum().backward()
        self.assertEqual(self.operations(scope="0"), [])
        self.assertEqual(self.operations(scope="1", phase="forward"), [
            ("aten::relu", "input:0"), ("aten::relu", "input_after:0"), ("aten::relu", "output:0"),
            ("aten::add.Tensor", "input:0"), ("aten::add.Tensor", "input_after:0"), ("aten::add.Tensor", "output:0")])
        self.assertIn(("aten::addmm", "output:0"),
                      self.operations(scope="1.layer", phase="forward"))
        self.assertIn(("aten::threshold_backward", "output:0"),
                      self.operations(scope="1", phase="backward"))
        self.assertIn(("aten::mm", "output:0"),
                      self.operations(scope="1.layer", phase="backward"))
        self.assertEqual({t.capture for t in self.fake.tensors(slot="output:0", scope="1")}, {"stats"})

    def test_inputs_are_hashed_behind_an_operation_that_may_only_read_them(self):
        shared = torch.zeros(1, dtype=torch.int64).share_memory_()  # another process may write it

        class Writing(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm1d(3, affine=False)

            def forward(self, x):
                y = self.norm(x)
                torch.relu_(y)
                y[1:2].copy_(y[:1])
                return y.index_add(0, shared, y[:1])

        x = torch.randn(3, 3)
        nn.Sequential(nn.Identity(), Writing())(x)
        self.assertEqual([one for one in self.operations(phase="forward") if "_" in one[1]], [
            ("aten::native_batch_norm", "input_after:0"), ("aten::native_batch_norm", "input_counted:1"),
            ("aten::native_batch_norm", "input_counted:2"), ("aten::index_add", "input_after:0"), ("aten::index_add", "input_after:2")])

    def test_results_are_those_of_an_unobserved_run(self):
        def run():
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Dropout(0.5), nn.LSTM(4, 4)))
            x = torch.randn(3, 2, 4, requires_grad=True)
            model(x)[0].sum().backward()
            return x.grad, torch.get_rng_state()

        observed = run()
        self.assertIn("aten::bernoulli_.float", [op for op, _ in self.operations()])
        self.observer.remove()
        for a, b in zip(observed, run()):
            self.assertTrue(torch.equal(a, b))

    def test_what_is_compiled_stays_compiled(self):
        """Run eagerly, the code could have other bits, and fullgraph=True would end the program."""
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        class Partly(nn.Module):
            def __init__(self):
                super().__init__()
                self.inside = torch.compile(Block(), backend=backend, fullgraph=True)

            def forward(self, x):
                return self.inside(x) + 1

        model = nn.Sequential(Block(), Partly())
        for _ in range(2):
            model(torch.randn(2, 3, requires_grad=True)).sum().backward()
        self.assertEqual(len(graphs), 1)
        self.assertIn(("aten::add.Tensor", "output:0"), self.operations(scope="1", phase="forward"))

    def test_an_exception_takes_the_mode_away(self):
        model = nn.Sequential(Block(), Block())
        with self.assertRaises(RuntimeError):
            model[1](torch.randn(2, 4))
        with self.assertRaises(RuntimeError):
            model(torch.randn(2, 4))
        self.fake.messages.clear()
        torch.randn(3) + 1
        self.assertEqual(self.operations(), [])

    def test_nothing_is_recorded_in_steps_without_values(self):
        self.fake.answer = 0
        nn.Sequential(Block(), Block())(torch.randn(2, 3))
        self.fake.messages.clear()
        nn.Sequential(Block(), Block())(torch.randn(2, 3))
        self.assertEqual(self.operations(), [])


class NoOperations(ObservedTest):
    settings = {"CONVTRACE_OPS": "never"}

    def test_a_pattern_that_matches_nothing_is_said_at_the_end(self):
        nn.Linear(2, 2)(torch.randn(1, 2))
        self.observer._program_ends()
        (diagnostic,) = self.fake.of("diagnostic")
        self.assertIn("matched no module that was called", diagnostic.text)
        self.fake.messages.clear()


class Optimizer(ObservedTest):
    settings = {"CONVTRACE_OPTIMIZER_STATE": "1"}

    def test_what_it_keeps_of_each_parameter(self):
        model = nn.Sequential(nn.Linear(2, 2))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(1, 2)).sum().backward()
        optimizer.step()
        kept = self.calls(phase="optimizer")
        for name in ("weight", "bias"):
            for key in ("step", "exp_avg", "exp_avg_sq"):
                self.assertIn(("0", 0, "state:%s.%s" % (name, key)), kept)


class LossScale(ObservedTest):
    def test_it_is_recorded_also_where_the_step_is_skipped(self):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        scales = []
        self.fake.on_tensor = lambda t: scales.append(t.shape) if t.slot == "loss_scale" else None
        for value in (1.0, float("inf")):
            optimizer.zero_grad()
            scaler.scale(model(torch.full((1, 2), value)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        self.assertEqual(scales, [(), ()])
        self.assertEqual(self.calls(slot="loss_scale"), [("", 0, "loss_scale")] * 2)


class TritonKernels(ObservedTest):
    """A stand-in for Triton's classes, with what those of 3.2.0 and 3.6.0 hold: no Triton runs here."""

    NAMES = ["x_ptr", "out_ptr", "scale", "count", "stride", "BLOCK"]
    TYPES = {"x_ptr": "*bf16", "out_ptr": "*fp32", "scale": "fp32", "count": "i32"}

    def setUp(self):
        class CompiledKernel:
            def __init__(self, source, function):
                self.src, self.name, self.module, self.function = source, "scaled", None, None
                self._handle = function

            def _init_handles(self):
                self.module, self.function = 7, self._handle
                return "loaded"

        self.kernel_class, self.original = CompiledKernel, CompiledKernel._init_handles
        put_module(self, "triton.compiler.compiler", CompiledKernel=CompiledKernel)
        super().setUp()

    def load(self, signature, constants, names=None, function=0x10):
        function_of = types.SimpleNamespace(module="mine", __name__="scaled", arg_names=names or self.NAMES)
        source = types.SimpleNamespace(fn=function_of, signature=signature, constants=constants)
        self.kernel_class(source, function)._init_handles()

    def kernels(self):
        return [(one.function, one.name, one.parameters) for one in self.fake.of("kernel")]

    def test_parameters_are_told_when_a_kernel_is_loaded(self):
        of_3_6 = {**self.TYPES, "stride": "constexpr", "BLOCK": "constexpr"}
        self.load(of_3_6, {(4,): 1, (5,): 128}, function=0x10)
        of_3_2 = {**self.TYPES, "stride": "i32"}
        self.load(of_3_2, {"stride": 1, "BLOCK": 128}, function=0x20)
        expected = [("arg:x_ptr", True, 4), ("arg:out_ptr", True, 2), ("arg:scale", False, 2), ("arg:count", False, 11)]
        self.assertEqual(self.kernels(), [(0x10, "scaled", expected), (0x20, "scaled", expected)])

    def test_arguments_of_each_version_are_a_fact(self):
        for types_of in ({"x_ptr": "*fp32", "count": "i32"}, {"x_ptr": "*fp32", "count": "i32"}, {"x_ptr": "*bf16", "count": "i32"}):
            self.load(types_of, {})
        self.assertEqual([f.value for f in self.fake.of("fact") if f.name == "triton.mine.scaled"],
                         ["x_ptr *fp32, count i32", "x_ptr *fp32, count i32 | x_ptr *bf16, count i32"])

    def test_a_tuple_is_several_parameters_and_a_type_without_counterpart_has_no_values(self):
        self.load({"pair": ("*fp8e4b15", ("i64", "constexpr")), "const_ptr": "*ki1", "deep": "**fp32"}, {},
                  names=["pair", "const_ptr", "deep"])
        self.assertEqual(self.kernels()[0][2], [("arg:pair.0", True, 0), ("arg:pair.1.0", False, 13), ("arg:const_ptr", True, 15),
                                                ("arg:deep", True, 0)])

    def test_a_kernel_with_a_type_of_unknown_size_is_not_described(self):
        self.load({"x_ptr": "*fp32", "block": "tensordesc<fp16[64,64]>"}, {}, names=["x_ptr", "block"])
        self.assertEqual(self.kernels(), [])

    def test_triton_is_as_before_when_the_observer_is_gone(self):
        self.assertIsNot(self.kernel_class._init_handles, self.original)
        self.observer.remove()
        self.assertIs(self.kernel_class._init_handles, self.original)

    def test_what_is_not_understood_harms_nothing(self):
        self.load({"x_ptr": 5}, {})
        self.assertEqual(self.kernel_class(None, 1)._init_handles(), "loaded")
        torch.nn.ReLU()(torch.ones(1))  # the first record, with which failures before it are told
        (diagnostic,) = self.fake.of("diagnostic")
        self.assertIn("triton", diagnostic.text)
        self.fake.messages.clear()


class Tuning(ObservedTest):
    """A stand-in for the tuners of Triton 3.6 and PyTorch 2.13."""

    def setUp(self):
        test = self

        class Autotuner:
            def __init__(self):
                self.cache, self.phases = {}, []
                self.base_fn = types.SimpleNamespace(__module__="mine", __name__="add")

            def prune_configs(self, kwargs):
                return ["BLOCK: 128", "BLOCK: 256"]

            def _bench(self, config):
                self.phases.append(test.fake.slot()[2])
                if config == "fails":
                    raise ValueError(config)

            def run(self, key):
                for config in self.prune_configs({}):
                    self._bench(config=config)
                self.cache[key] = config

        class CachingAutotuner:
            def __init__(self):
                self.launchers, self.fn = [], types.SimpleNamespace(__name__="triton_poi_fused_add_0")

            def precompile(self):
                self.launchers = [types.SimpleNamespace(config="XBLOCK: %d" % size) for size in (64, 128)]

        put_module(self, "triton.runtime.autotuner", Autotuner=Autotuner)
        put_module(self, "torch._inductor.runtime.triton_heuristics", CachingAutotuner=CachingAutotuner)
        super().setUp()
        self.tuner, self.inductors = Autotuner(), CachingAutotuner()
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def step(self):
        self.model(torch.randn(1, 2)).sum().backward()
        self.optimizer.step()

    def facts(self):
        return {f.name: f.value for f in self.fake.of("fact") if f.name.startswith("autotune.")}

    def test_is_a_phase_of_its_own_also_where_a_try_fails(self):
        tuner = self.tuner
        self.step()
        tuner.run((1,))
        with self.assertRaises(ValueError):
            tuner._bench("fails")
        self.assertEqual(tuner.phases, ["tuning"] * 3)
        self.assertNotEqual(self.fake.slot()[2], "tuning")

    def test_what_was_chosen_is_a_fact_at_the_next_step(self):
        tuner, inductors = self.tuner, self.inductors
        self.step()
        tuner.run((1,))
        inductors.precompile()
        self.step()
        self.assertEqual(self.facts(), {"autotune.mine.add": "(1,) BLOCK: 256"})
        tuner.run((2,))
        del inductors.launchers[0]
        self.step()
        self.assertEqual(self.facts(), {"autotune.mine.add": "(1,) BLOCK: 256 | (2,) BLOCK: 256",
                                        "autotune.triton_poi_fused_add_0": "XBLOCK: 128"})


if __name__ == "__main__":
    unittest.main()
