"""What is recorded on request: every operation of chosen modules, what the optimizer keeps; and
facts of Triton kernels."""
import sys
import types
import unittest

from support import ObservedTest, torch

nn = torch.nn


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
            ("aten::relu", "input:0"), ("aten::relu", "output:0"),
            ("aten::add.Tensor", "input:0"), ("aten::add.Tensor", "output:0")])
        self.assertIn(("aten::addmm", "output:0"),
                      self.operations(scope="1.layer", phase="forward"))
        self.assertIn(("aten::threshold_backward", "output:0"),
                      self.operations(scope="1", phase="backward"))
        self.assertIn(("aten::mm", "output:0"),
                      self.operations(scope="1.layer", phase="backward"))
        self.assertEqual({t.capture for t in self.fake.tensors(slot="output:0", scope="1")}, {"stats"})

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
        """Eager, it could have other bits, and fullgraph=True would end the program."""
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
    """A stand-in with the interface of triton.knobs.runtime (3.4): no Triton runs here."""

    def install(self, before=None):
        triton, knobs = types.ModuleType("triton"), types.ModuleType("triton.knobs")
        knobs.runtime = types.SimpleNamespace(jit_post_compile_hook=before)
        for module in (triton, knobs):
            sys.modules[module.__name__] = module
            self.addCleanup(sys.modules.pop, module.__name__, None)
        nn.Linear(2, 2)(torch.randn(1, 2))
        return knobs.runtime

    def compiled(self, runtime, **signature):
        return runtime.jit_post_compile_hook(
            key="k", repr="add", fn=types.SimpleNamespace(module="mine", name="add"),
            compile={"key": "k", "signature": signature}, is_manual_warmup=False,
            already_compiled=False)

    def facts(self):
        return [f.value for f in self.fake.of("fact") if f.name == "triton.mine.add"]

    def test_arguments_of_each_version_are_a_fact(self):
        runtime = self.install()
        self.compiled(runtime, x_ptr="*fp32", n="i32")
        self.compiled(runtime, x_ptr="*fp32", n="i32")
        self.compiled(runtime, x_ptr="*bf16", n="i32")
        self.assertEqual(self.facts(), ["x_ptr *fp32, n i32", "x_ptr *fp32, n i32 | x_ptr *bf16, n i32"])

    def test_a_hook_that_was_there_is_called_and_comes_back(self):
        calls = []

        def theirs(**arguments):
            calls.append(arguments["fn"].name)
            return "theirs"

        runtime = self.install(theirs)
        self.assertEqual(self.compiled(runtime, n="i32"), "theirs")
        self.assertEqual(calls, ["add"])
        self.observer.remove()
        self.assertIs(runtime.jit_post_compile_hook, theirs)

    def test_another_interface_harms_nothing(self):
        runtime = self.install()
        runtime.jit_post_compile_hook("unknown")
        (diagnostic,) = self.fake.of("diagnostic")
        self.assertIn("triton", diagnostic.text)
        self.fake.messages.clear()


if __name__ == "__main__":
    unittest.main()
