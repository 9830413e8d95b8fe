"""The program must not notice the observer: same bits, same random state, nothing kept, nothing printed,
nothing stored in objects that it copies or pickles."""
import copy
import gc
import io
import os
import pickle
import posix
import sys
import types
import unittest
import unittest.mock
import warnings
import weakref

import fake_engine
from support import ObservedTest, torch

nn = torch.nn


def train(steps=4):
    """Losses and final state of a small model with dropout, in-place ops and a shared layer."""
    torch.manual_seed(7)
    shared = nn.Linear(8, 8)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), shared, nn.Dropout(0.3),
                          nn.BatchNorm1d(8), shared, nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = criterion(model(torch.randn(5, 4)), torch.randint(2, (5,)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return losses + list(model.state_dict().values()) + [torch.get_rng_state()]


class Results(unittest.TestCase):
    def test_bits_and_random_state_are_those_of_an_unobserved_run(self):
        expected = train()
        for mode in ("stats", "hash", "launches"):
            fake, observer = fake_engine.observe(torch, mode)
            try:
                found = train()
            finally:
                observer.remove()
            self.assertEqual(fake.of("diagnostic"), [])
            for a, b in zip(expected, found):
                self.assertTrue(torch.equal(a, b), mode)


class Depth(ObservedTest):
    def run_nested(self, depth):
        """@return whether modules nested to this depth can be called."""
        model = nn.Identity()
        for _ in range(depth):
            model = nn.Sequential(model)
        try:
            with torch.no_grad():
                model(torch.ones(1))
            return True
        except RecursionError:
            return False

    @unittest.skipUnless(hasattr(nn.Module, "_wrapped_call_impl"), "before torch 2.1 a call of a module has one frame more")
    def test_modules_nest_as_deep_as_in_an_unobserved_run(self):
        self.observer.remove()
        deepest = next(depth for depth in range(400, 0, -1) if self.run_nested(depth))
        self.fake, self.observer = fake_engine.observe(torch)
        self.assertTrue(self.run_nested(deepest))

    def test_a_failure_where_no_call_is_left_stays_ours(self):
        with unittest.mock.patch("signal.valid_signals", side_effect=RecursionError):
            for _ in range(9):
                self.observer.failed("a hook", RecursionError())
        self.assertTrue(self.observer.active)  # tearDown: nothing was said
        nn.Identity()(torch.ones(1))
        self.assertEqual(sum(one.count for one in self.fake.of("loss")), 9)


class Tracers(ObservedTest):
    @unittest.skipIf(sys.version_info < (3, 11), "Python has no way to let a tracer rest")
    def test_a_debugger_does_not_come_by_the_observer_in_a_model(self):
        if isinstance(self.observer.hot.enter, types.MethodType):
            self.skipTest("functions of Python alone are seen")
        seen, model = [], nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        for switch in sys.settrace, sys.setprofile:
            before = getattr(sys, switch.__name__.replace("set", "get"))()
            switch(lambda frame, what, value: seen.append(frame.f_code.co_filename))
            try:
                model(torch.randn(2, 4)).sum()
            finally:
                switch(before)
        self.assertTrue(seen)
        self.assertEqual([path for path in seen if "convtrace_observer" in path], [])
        self.assertTrue(self.fake.of("scope"))


class Memory(ObservedTest):
    def test_no_tensor_outlives_the_program_s_use_of_it(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        gc.disable()  # what dies must die by its reference count
        try:
            x = torch.randn(2, 4, requires_grad=True)
            y = model(x)
            references = [weakref.ref(x), weakref.ref(y)]
            storages = [weakref.ref(t.untyped_storage()) for t in (x, y)]
            y.sum().backward()
            del x, y
            self.assertEqual([r() for r in references + storages], [None] * 4)
        finally:
            gc.enable()

    def test_what_a_program_puts_on_a_storage_dies_soon_after_it(self):
        class Mark:
            pass

        def marked():
            x = torch.randn(2, 4)
            x.untyped_storage().mark = Mark()
            marks.append(weakref.ref(x.untyped_storage().mark))
            return x

        model, marks = nn.Linear(4, 4), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gc.disable()
        try:
            for _ in range(10):
                model(marked()).sum().backward()
                optimizer.step()
            self.assertLessEqual(sum(mark() is not None for mark in marks), 1)
            with torch.no_grad():
                for _ in range(1000):
                    model(marked())
            self.assertLess(sum(mark() is not None for mark in marks), 100)
        finally:
            gc.enable()

    def test_a_graph_that_is_never_used_dies_at_once(self):
        class Keep(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x.clone())
                references.append(weakref.ref(ctx.to_save[0]))
                return x.clone()

        references = []
        model = nn.Linear(4, 4)
        model.forward = lambda x: Keep.apply(x)
        gc.disable()
        try:
            y = model(torch.randn(2, 4, requires_grad=True))
            self.assertIsNotNone(references[0]())
            del y
            self.assertIsNone(references[0]())
        finally:
            gc.enable()

    def test_modules_are_not_kept_alive(self):
        model = nn.Sequential(nn.Linear(4, 4))
        model(torch.randn(2, 4))
        reference = weakref.ref(model[0])
        del model
        gc.collect()
        self.assertIsNone(reference())


class Objects(ObservedTest):
    def test_modules_copy_and_pickle_as_before(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        before = pickle.dumps(model)
        model(torch.randn(2, 4)).sum().backward()
        model.zero_grad()
        self.assertEqual(len(pickle.dumps(model)), len(before))
        copy.deepcopy(model)(torch.randn(2, 4))

    def test_os_exit_is_pickled_as_before(self):
        replaced = os._exit
        self.assertIs(pickle.loads(pickle.dumps(os._exit)), os._exit)  # as target of a process, say
        self.assertIs(posix._exit, os._exit)
        self.observer.remove()
        self.assertIs(posix._exit, os._exit)
        self.assertIsNot(os._exit, replaced)

    def test_saving_an_output_gives_no_warning(self):
        y = nn.Linear(4, 4)(torch.randn(2, 4))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.save(y, io.BytesIO())

    def test_in_place_changes_of_a_modules_output_keep_both_gradients(self):
        layer = nn.Linear(4, 4)
        x = torch.randn(2, 4)

        def gradient():
            layer.zero_grad()
            nn.ReLU(inplace=True)(layer(x)).sum().backward()
            return layer.weight.grad.clone()

        observed = gradient()
        self.observer.remove()
        self.assertTrue(torch.equal(observed, gradient()))

    def test_hooks_add_no_node_to_the_graph(self):
        y = nn.Linear(4, 4)(torch.randn(2, 4))
        self.assertEqual(type(y.grad_fn).__name__, "AddmmBackward0")

    def test_double_backward_works(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        x = torch.randn(2, 4, requires_grad=True)
        gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        gradient.pow(2).sum().backward()
        self.assertIsNotNone(x.grad)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.layer(x))


class Compile(ObservedTest):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        self.graphs = []
        context = warnings.catch_warnings()
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        warnings.filterwarnings("error", message=".*hooks.*")

    def backend(self, graph, inputs):
        self.graphs.append([node.name for node in graph.graph.nodes])
        return graph.forward

    def compiled(self, target, **options):
        return torch.compile(target, backend=self.backend, **options)

    def both(self, run):
        """@return the results of `run()` and Dynamo's graphs of it, without and with the observer."""
        with_us = run(), self.graphs
        self.observer.remove()
        torch._dynamo.reset()
        self.graphs = []
        without_us = run(), self.graphs
        return without_us, with_us

    def test_fullgraph_compilation_passes_through(self):
        for model in (Plain(), nn.Sequential(nn.Linear(4, 4), nn.ReLU())):
            compiled = self.compiled(model, fullgraph=True)
            x = torch.randn(2, 4)
            self.assertTrue(torch.equal(compiled(x), model(x)))
        self.assertEqual(len(self.graphs), 2)
        self.assertFalse(torch._dynamo.utils.counters["graph_break"])

    def test_graphs_are_those_of_an_unobserved_run(self):
        def run():
            torch.manual_seed(0)
            model = nn.Sequential(Plain(), nn.Dropout(0.5), Plain())
            model[1].register_forward_hook(lambda *_: torch._dynamo.graph_break())
            compiled = self.compiled(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                compiled(torch.randn(2, 4)).sum().backward()
                optimizer.step()
            return [p.tolist() for p in model.parameters()]

        without_us, with_us = self.both(run)
        self.assertEqual(without_us, with_us)
        self.assertGreater(len(with_us[1]), 1)

    def test_a_compiled_training_step_works(self):
        def run():
            torch.manual_seed(0)
            model = Plain()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def step(x):
                model(x).sum().backward()
                optimizer.step()

            step = self.compiled(step)
            for _ in range(3):
                step(torch.ones(2, 4))
            return [p.tolist() for p in model.parameters()]

        without_us, with_us = self.both(run)
        self.assertEqual(without_us[0], with_us[0])

    def test_the_observer_itself_is_never_compiled(self):
        def disabled(x):
            return model(x)

        model = nn.Sequential(Plain(), Plain())
        run_eagerly = torch._dynamo.disable(disabled, recursive=False)
        loss = self.compiled(lambda x: run_eagerly(x).sum())(torch.ones(2, 4))
        loss.backward()
        outputs = {t.scope for t in self.fake.tensors(slot="output:0")}
        gradients = {t.scope for t in self.fake.tensors(slot="grad_output:0")}
        self.assertIn("1", outputs)
        self.assertEqual(gradients, outputs)
        self.assertFalse([g for g in self.graphs if "layer" not in str(g) and "sum" not in str(g)])

    def test_the_wrapper_of_a_compiled_root_is_recorded_in_its_place(self):
        compiled = self.compiled(Plain())
        for _ in range(2):
            compiled(torch.randn(2, 4)).sum().backward()
        self.assertEqual(self.calls(phase="forward", slot="output:0"),
                         [("", 0, "output:0"), ("", 1, "output:0")])

    def test_a_compiled_child_takes_followed_outputs(self):
        model = nn.Sequential(nn.Linear(4, 4), self.compiled(Plain(), fullgraph=True))
        model(torch.randn(2, 4)).sum().backward()
        self.assertIsNotNone(model[0].weight.grad)

    def test_a_module_compiled_in_place_still_has_steps(self):
        model = Plain()
        model.compile(backend="eager", fullgraph=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        self.assertEqual(self.steps(), [0, 1, 2])

    def test_a_compiled_optimizer_step_still_ends_a_step(self):
        model = Plain()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            step()
        self.assertEqual(self.steps(), [0, 1, 2])

    def test_export_sees_no_hooks(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        x = torch.randn(2, 4)
        self.assertTrue(torch.equal(torch.export.export(model, (x,)).module()(x), model(x)))

    def test_a_jit_trace_of_a_new_model_is_that_of_an_unobserved_run(self):
        class Labelled(Plain):
            def forward(self, x):
                return nn.functional.cross_entropy(super().forward(x), x.argmax(1))

        def run():
            # Its own check traces twice, and tells any difference between the two.
            traced = torch.jit.trace(Labelled(), torch.ones(2, 4))
            return [node.kind() for node in traced.inlined_graph.nodes()]

        warnings.simplefilter("ignore", DeprecationWarning)
        without_us, with_us = self.both(run)
        self.assertEqual(without_us, with_us)


if __name__ == "__main__":
    unittest.main()
