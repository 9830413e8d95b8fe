"""The beginning of steps, and the phase and call of records, in common training loops."""
import contextlib
import functools
import os
import tempfile
import unittest
import unittest.mock

from support import ObservedTest, fake_engine, torch

from convtrace_observer.training import optimizer

nn = torch.nn
functional = torch.nn.functional


class Called:
    """A callable that is not a function."""

    def __init__(self, closure):
        self.closure = closure

    def __call__(self):
        return self.closure()


def small_model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class StepsTest(ObservedTest):
    def setUp(self):
        super().setUp()
        self.model = small_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def batch(self):
        return torch.randn(3, 4)

    def train(self, batches=1):
        self.optimizer.zero_grad()
        for _ in range(batches):
            self.model(self.batch()).sum().backward()
        self.optimizer.step()

    def steps_of_root_inputs(self):
        """@return the step of each forward of a root, in order."""
        found, step = [], 0
        for message in self.fake.messages:
            if message.kind == "step":
                step = message.index
            elif (message.kind == "scope" and message.enter and message.scope in ("", "MSELoss")
                  and message.phase != "backward"):
                found.append(step)
        return found

    def evaluate(self, passes=2):
        self.model.eval()
        with torch.no_grad():
            for _ in range(passes):
                self.model(torch.ones(3, 4))
        self.model.train()

    def roots(self):
        """@return [(step, phase, call)] of the forwards of roots, in order. Later roots are named by their class."""
        found, step = [], 0
        for message in self.fake.messages:
            if message.kind == "step":
                step = message.index
            elif (message.kind == "scope" and message.enter and message.phase != "backward"
                  and (message.scope == "" or message.scope[0].isupper() and "." not in message.scope)):
                found.append((step, message.phase, message.call))
        return found


class Steps(StepsTest):
    def test_a_training_loop(self):
        for _ in range(3):
            self.train()
        self.assertEqual(self.steps(), [0, 1, 2])
        self.assertEqual(self.steps_of_root_inputs(), [0, 1, 2])

    def test_a_backward_pass_is_entered_and_left(self):
        model = nn.Linear(2, 2)
        for _ in range(2):
            model(torch.randn(1, 2)).sum().backward()
        self.assertEqual(
            [(s.scope, s.call, s.enter) for s in self.fake.of("scope") if s.phase == "backward"],
            [("", 0, True), ("", 0, False), ("", 1, True), ("", 1, False)])

    def test_a_large_root_that_nothing_trains_is_seldom_looked_through(self):
        root = nn.Sequential(*[nn.Linear(2, 2) for _ in range(160)]).requires_grad_(False)
        optimizers = self.observer.optimizers
        with unittest.mock.patch.object(optimizers, "_trained", wraps=optimizers._trained) as looked:
            for _ in range(33):
                root(self.batch()[:, :2])
        self.assertEqual(looked.call_count, 3)

    def test_a_loss_module_belongs_to_the_models_step(self):
        criterion = nn.MSELoss()
        for _ in range(2):
            criterion(self.model(self.batch()), torch.zeros(3, 2)).backward()
            self.optimizer.step()
        self.assertEqual(self.steps_of_root_inputs(), [0, 0, 1, 1])

    def test_gradient_accumulation_is_one_step_with_more_calls(self):
        self.train(batches=3)
        self.train(batches=3)
        self.assertEqual(self.steps(), [0, 1])
        self.assertEqual(self.calls(slot="output:0", scope="2"), 2 * [
            ("2", call, "output:0") for call in range(3)])
        self.assertEqual(self.calls(slot="grad_output:0", scope="2"), 2 * [
            ("2", call, "grad_output:0") for call in range(3)])
        self.assertEqual(self.calls(slot="loss"), 2 * [("", call, "loss") for call in range(3)])
        self.assertEqual(self.calls(slot="grad:weight", scope="2"), 2 * [("2", 0, "grad:weight")])

    def test_gradients_carry_their_forward_calls_index(self):
        self.train()
        self.fake.messages.clear()
        first, second = self.model(self.batch()), self.model(self.batch())
        second.sum().backward()
        first.sum().backward()
        self.assertEqual([call for _, call, _ in self.calls(slot="grad_output:0", scope="0")],
                         [1, 0])

    def test_updates_made_before_are_told_by_the_optimizers_counter(self):
        def facts():
            return [f.value for f in self.fake.of("fact") if f.name == "steps.updates_before"]

        for kind in (torch.optim.AdamW, torch.optim.RMSprop):
            self.optimizer = kind(self.model.parameters())
            self.observer.remove()
            self.fake, self.observer = fake_engine.observe(torch)
            self.train()
            self.train()
            self.assertEqual(facts(), [])  # from the start
            self.observer.remove()
            self.fake, self.observer = fake_engine.observe(torch)
            self.train()
            self.train()
            self.assertEqual(facts(), ["2"])

    def test_optimizers_that_take_turns_have_made_the_sum_of_their_updates(self):
        critic = nn.Linear(2, 1)
        other = torch.optim.Adam(critic.parameters())
        self.optimizer = torch.optim.Adam(self.model.parameters())

        def iterate():
            for _ in range(2):
                critic(torch.ones(1, 2)).sum().backward()
                other.step()
            self.train()

        iterate()
        iterate()
        self.observer.remove()
        self.fake, self.observer = fake_engine.observe(torch)
        iterate()
        self.assertEqual([f.value for f in self.fake.of("fact") if f.name == "steps.updates_before"],
                         ["4", "6"])

    def test_inference_in_front_of_training_is_subtracted(self):
        self.without_optimizers()
        for _ in range(2):
            self.model(self.batch())
        for kind in optimizer._subclasses(torch.optim.Optimizer):
            if kind is torch.optim.SGD:
                kind.step.hooked = True
        self.evaluate()
        self.train()
        self.assertEqual(self.roots()[-3:], [(2, "evaluation", 0), (2, "evaluation", 1), (2, "forward", 0)])
        self.assertEqual([f.value for f in self.fake.of("fact") if f.name == "steps.updates_before"], ["-2"])

    def test_inference_every_root_forward_is_a_step(self):
        self.without_optimizers()
        with torch.inference_mode():
            for _ in range(4):
                self.model(self.batch())
        self.assertEqual(self.steps(), [0, 1, 2, 3])

    def test_a_model_called_twice_for_its_first_loss_does_not_do_inference(self):
        with torch.no_grad():
            for _ in range(2):
                self.model(self.batch())  # a trial run, as some trainers make
        for _ in range(2):
            self.optimizer.zero_grad()
            (self.model(self.batch()) - self.model(self.batch())).square().sum().backward()
            self.optimizer.step()
        self.assertEqual(self.steps_of_root_inputs(), [0, 0, 0, 0, 1, 1])
        self.assertEqual([call for _, call, _ in self.calls(phase="backward", slot="grad_output:0", scope="2")],
                         [1, 0, 1, 0])

    def test_inference_with_gradients_switched_on_is_inference(self):
        self.without_optimizers()
        for _ in range(3):
            self.model(self.batch())
        self.assertEqual(self.steps(), [0, 1, 2])

    def test_several_optimizers_are_one_phase(self):
        other = torch.optim.SGD(self.model[0].parameters(), lr=0.1)
        for _ in range(2):
            self.train()
            other.step()
        self.assertEqual(self.steps(), [0, 1])

    def test_many_step_calls_of_partitions_are_one_phase(self):
        """The partitions are stepped one by one, as ZeRO-3 does with its sub groups."""
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
        partitions = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model]
        for _ in range(3):
            model(torch.randn(2, 4)).sum().backward()
            for partition in partitions:
                partition.step()
        self.assertEqual(self.steps(), [0, 1, 2])
        self.assertEqual(len(self.calls(slot="param:weight", phase="optimizer")), 15)

    def test_an_optimizer_inside_the_backward_pass(self):
        """Each parameter is updated as soon as its gradient is complete."""
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def update(parameter):
            optimizers[parameter].step()
            parameter.grad = None

        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(update)
        for _ in range(3):
            model(torch.randn(2, 4)).sum().backward()
        self.assertEqual(self.steps(), [0, 1, 2])
        grads = [(t.scope, t.slot) for t in self.fake.tensors(phase="backward")
                 if t.slot.startswith("grad:")]
        self.assertEqual(sorted(grads), sorted(
            [(scope, "grad:" + name) for scope in "01" for name in ("bias", "weight")] * 3))

    def test_the_place_before_an_optimizer_step_comes_back(self):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        places = []

        def update(parameter):
            optimizer.step()
            places.append(self.fake.slot())

        model.weight.register_post_accumulate_grad_hook(update)
        model(torch.randn(1, 2)).sum().backward()
        self.assertEqual(places, [("", 0, "backward")])

    def test_a_skipped_scaler_step_ends_the_step(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        for factor in (1.0, float("inf"), 1.0):
            self.optimizer.zero_grad()
            scaler.scale(self.model(self.batch()).sum() * factor).backward()
            scaler.step(self.optimizer)
            scaler.update()
        self.assertEqual(self.steps_of_root_inputs(), [0, 1, 2])
        self.assertEqual(len(self.fake.tensors(slot="param:weight", scope="0",
                                               phase="optimizer")), 2)

    def test_functional_training_without_modules_has_steps(self):
        weight = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            ((weight - 1) ** 2).sum().backward()
            optimizer.step()
        self.assertEqual(self.steps(), [0, 1, 2])
        self.assertEqual(self.calls(phase="optimizer"), [("", 0, "param:group0.0")] * 3)

    def test_an_optimizer_that_is_not_seen_shows_by_the_weights(self):
        """The weights are changed by hand or by a compiled step. Accumulation of gradients changes none."""
        for _ in range(3):
            self.model.zero_grad()
            for _ in range(2):
                self.model(self.batch()).sum().backward()
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter -= 0.1 * parameter.grad
        self.assertEqual(self.steps_of_root_inputs(), [0, 0, 1, 1, 2, 2])
        left = [message.slot if message.kind == "tensor" else "step" for message in self.fake.messages
                if message.kind == "step" or message.kind == "tensor" and message.phase == "optimizer"]
        self.assertEqual(left, ["step"] + 2 * (2 * ["param:weight", "param:bias"] + ["step"]))

    def test_weights_changed_by_hand_beside_an_optimizer_begin_no_step(self):
        for _ in range(2):
            self.optimizer.zero_grad()
            self.model(self.batch()).sum().backward()
            self.optimizer.step()
            self.model(self.batch()).sum().backward()
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter += 0.01 * parameter.grad  # a sharpness-aware method looks there and back
            self.model(self.batch()).sum().backward()
            self.optimizer.step()
        self.assertEqual(self.steps_of_root_inputs(), [0, 1, 1, 2, 3, 3])

    def test_a_closure_runs_forward_inside_the_optimizer(self):
        optimizer = torch.optim.LBFGS(self.model.parameters(), max_iter=2)
        x = self.batch()

        def closure():
            optimizer.zero_grad()
            loss = self.model(x).pow(2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        optimizer.step(closure)
        self.assertEqual(self.steps(), [0, 1])
        self.assertEqual({t.phase for t in self.fake.tensors(slot="output:0")}, {"forward"})

    def test_gradients_of_a_closure_are_those_of_its_first_call(self):
        for kind, settings in ((torch.optim.LBFGS, {"max_iter": 3}), (torch.optim.AdamW, {})):
            for bind in (lambda one: one, functools.partial, lambda one: Called(one)):
                with self.subTest(kind=kind, bind=bind):
                    model = small_model()
                    self.check_closure(model, kind(model.parameters(), **settings), bind)

    def test_a_closure_is_the_program_s_own_object(self):
        given = []

        class Asks(torch.optim.SGD):
            def step(self, closure=None):
                given.append(closure)
                return super().step(closure)

        class Trainer:
            def closure(self):
                return torch.zeros(())

        optimizer = Asks(self.model.parameters(), lr=0.1)
        closures = [lambda: torch.zeros(()), functools.partial(torch.zeros, ()), Trainer().closure, Called(lambda: torch.zeros(()))]
        for closure in closures:
            optimizer.step(closure)
            optimizer.step(closure=closure)
        self.assertEqual(list(map(id, given)), [id(closure) for closure in closures for _ in range(2)])

    def test_the_phase_behind_an_optimizer_in_another_one_and_behind_one_that_raised(self):
        class Outer(torch.optim.SGD):
            def step(self, closure=None):
                inner.step()

        def refuse():
            raise MemoryError

        inner, outer = torch.optim.SGD(self.model.parameters(), lr=0.1), Outer(self.model.parameters(), lr=0.1)
        slot = self.observer.threads.state.slot
        before = slot[0], slot[1]
        outer.step()
        self.assertEqual((slot[0], slot[1]), before)
        with self.assertRaises(MemoryError):
            inner.step(refuse)
        self.model(self.batch())
        self.assertEqual((slot[0], slot[1]), before)
        with self.assertRaises(MemoryError):
            inner.step(refuse)
        outer.step()
        self.assertEqual((slot[0], slot[1]), before)
        with self.assertRaises(MemoryError):
            inner.step(refuse)
        inner.step()
        self.assertEqual((slot[0], slot[1]), before)

    def check_closure(self, model, optimizer, bind):
        left, taken = [], []

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(3, 4)).pow(2).sum()
            loss.backward()
            left.append(model[0].weight.grad.clone())
            return loss

        def take(tensor):
            if (tensor.slot, tensor.scope) == ("grad:weight", "0"):
                taken.append((left[0], model[0].weight.grad.clone()))

        self.fake.messages.clear()
        self.fake.on_tensor = take
        self.observer.names.clear()  # as in a program of its own
        optimizer.step(closure=bind(closure))
        left.clear()
        optimizer.step(bind(closure))
        told = [(t.scope, t.slot) for t in self.fake.of("tensor") if t.phase in ("backward", "optimizer")
                and t.slot.split(":")[0] in ("grad", "param")]
        names = [("0", "weight"), ("0", "bias"), ("2", "weight"), ("2", "bias")]
        self.assertEqual(told, [(scope, kind + name) for _ in range(2) for kind in ("grad:", "param:")
                                for scope, name in names])
        self.assertEqual([torch.equal(*both) for both in taken], [True, True])

    def test_a_step_of_the_base_class_or_of_a_wrapped_optimizer_is_a_part_of_the_step(self):
        class Own(torch.optim.SGD):
            def step(self, closure=None):
                for one in self.param_groups[0]["params"]:
                    one.grad -= one.grad.mean()
                super().step(closure)
                super().step()

        class Fails(Own):
            def step(self, closure=None):
                with contextlib.suppress(ZeroDivisionError):
                    super().step(lambda: 1 // 0)
                super().step(closure)

        class Wraps(torch.optim.Optimizer):
            def __init__(self, parameters, lr):
                self.inner = torch.optim.SGD(parameters, lr=lr)
                super().__init__(self.inner.param_groups, {})
                self.param_groups = self.inner.param_groups

            def step(self, closure=None):
                self.inner.step(closure)

        for kind in torch.optim.SGD, Own, Fails, Wraps:
            for closure in None, lambda: 0.0:
                self.optimizer = kind(self.model.parameters(), lr=0.1)
                with self.subTest(kind, closure=closure):
                    self.model(self.batch()).sum().backward()
                    self.fake.messages.clear()
                    before = self.fake.slot()[:2]
                    self.optimizer.step(closure)
                    for slot in "grad:weight", "param:weight":
                        told = self.fake.tensors(slot=slot)
                        self.assertEqual([one.scope for one in told], ["0", "2"])
                        self.assertEqual({one.phase for one in told}, {"backward" if slot[0] == "g" else "optimizer"})
                    self.assertEqual(self.observer.optimizers._steps, [])
                    self.assertEqual(self.fake.slot()[:2], before)
                    classes = [one.value for one in self.fake.of("event_fact") if one.name.endswith(".class")]
                    self.assertEqual(any(one.endswith(".SGD") for one in classes), kind in (torch.optim.SGD, Wraps), classes)

    def test_parameters_that_an_optimizer_steps_before_a_module_runs_get_their_names_later(self):
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        self.train()
        self.assertEqual([(t.scope, t.slot) for t in self.fake.tensors(phase="optimizer")],
                         [("", "param:group0.%d" % i) for i in range(4)] +
                         [("0", "param:weight"), ("0", "param:bias"), ("2", "param:weight"), ("2", "param:bias")])

    def test_gan_two_roots_share_steps(self):
        generator, critic = small_model(), nn.Sequential(nn.Linear(2, 1))
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (critic, generator)]
        for _ in range(2):
            fake = generator(self.batch())
            for target, owner in zip((fake.detach(), fake), optimizers):
                owner.zero_grad()
                critic(target).sum().backward()
                owner.step()
        # The generator's update ends an optimizer phase in between: its critic forward opens a step.
        self.assertEqual(self.steps(), [0, 1, 2, 3])

    def test_a_parameter_replaced_after_the_first_forward_keeps_its_name(self):
        self.train()
        state = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(state, assign=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.fake.messages.clear()
        self.train()
        self.assertEqual({scope for scope, _, _ in self.calls(phase="optimizer")}, {"0", "2"})


class Written(StepsTest):
    """Parameters that the program writes itself are recorded again before they are used."""

    def written(self):
        return [(t.scope, t.call, t.slot) for t in self.fake.of("tensor") if t.slot.startswith("param_written:")]

    def test_writes_are_the_programs_behind_a_step_that_raised(self):
        class Refuses(torch.optim.SGD):
            def step(self, closure=None):
                raise MemoryError

        self.train()
        with self.assertRaises(MemoryError):
            Refuses(self.model.parameters(), lr=0.1).step()
        with torch.no_grad():
            self.model[0].weight.mul_(2)
        self.train()
        self.assertEqual(self.written(), [("0", 0, "param_written:weight")])

    def test_an_optimizers_writes_are_not_the_programs(self):
        for _ in range(3):
            self.train(batches=2)
            self.evaluate()
        self.assertEqual(self.written(), [])

    def test_a_write_that_torch_counts_is_recorded_once_at_the_next_use(self):
        self.train()
        with torch.no_grad():
            self.model[2].bias[0].mul_(4)
        self.assertEqual(self.written(), [])
        self.train(batches=2)
        self.train()
        self.assertEqual(self.written(), [("2", 0, "param_written:bias")])

    def test_all_parameters_that_are_loaded_again_are_recorded_in_order(self):
        self.train()
        self.model.load_state_dict({name: 2 * value for name, value in self.model.state_dict().items()})
        self.train()
        self.assertEqual(self.written(), [(scope, 0, "param_written:" + name) for scope in ("0", "2") for name in ("weight", "bias")])

    def test_writes_that_torch_does_not_count_are_seen_by_their_elements(self):
        self.train()
        self.model[0].weight.data.clamp_(-0.01, 0.01)
        self.model[2].bias.detach().numpy()[:] = 7
        self.model[2].weight.data = 3 * self.model[2].weight.data
        self.train()
        self.assertEqual(self.written(), [("0", 0, "param_written:weight"), ("2", 0, "param_written:weight"), ("2", 0, "param_written:bias")])

    def test_memory_that_torch_has_not_allocated_is_looked_at_while_it_is_there(self):
        with tempfile.NamedTemporaryFile() as file:
            os.truncate(file.name, 1 << 16)
            self.model.register_parameter("mapped", nn.Parameter(
                torch.from_file(file.name, shared=True, size=1 << 14), requires_grad=False))
            self.train()
            file.write(b"another process")
            file.flush()
            self.train()
            self.assertEqual(self.written(), [("", 0, "param_written:mapped")])
            os.truncate(file.name, 0)
            self.train()
            self.assertEqual(len(self.written()), 1)

    def test_memory_that_moves_without_a_change_is_no_write(self):
        self.train()
        for parameter in self.model.parameters():
            parameter.data = parameter.data.clone()
        self.train()
        self.assertEqual(self.written(), [])

    def test_another_parameter_in_its_place_is_no_write(self):
        self.train()
        self.model[0].weight = nn.Parameter(2 * self.model[0].weight.detach())
        self.train()
        self.assertEqual(self.written(), [])

    def test_evaluation_with_other_weights_and_back_records_both(self):
        self.train()
        with torch.no_grad():
            self.model[0].weight.mul_(2)
            self.evaluate(passes=1)
            self.model[0].weight.div_(2)
        self.train()
        self.assertEqual([(t.phase, t.slot) for t in self.fake.of("tensor") if t.slot.startswith("param_written:")],
                         [("evaluation", "param_written:weight"), ("forward", "param_written:weight")])

    def test_a_closure_that_its_optimizer_calls_again_sees_its_writes(self):
        def closure():
            self.optimizer.zero_grad()
            loss = self.model(self.batch()).square().mean()
            loss.backward()
            return loss

        self.optimizer = torch.optim.LBFGS(self.model.parameters(), max_iter=3)
        for _ in range(2):
            self.optimizer.step(closure)
        self.assertEqual(self.written(), [])
        with torch.no_grad():
            self.model[0].bias.add_(1)
        self.optimizer.step(closure)
        self.assertEqual(self.written(), [("0", 0, "param_written:bias")])

    def test_updates_that_were_not_recorded_hide_writes(self):
        self.train()
        self.observer.capture = False
        self.train()
        self.observer.capture = True
        self.train()
        self.assertEqual(self.written(), [])

    def test_a_tied_weight_is_recorded_once(self):
        self.model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.model[2].weight = self.model[0].weight
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.train()
        with torch.no_grad():
            self.model[0].weight.mul_(2)
        self.train()
        self.assertEqual(self.written(), [("0", 0, "param_written:weight")])

    def test_a_loop_without_an_optimizer_updates_its_weights_itself(self):
        self.without_optimizers()
        self.observer.steps.sees_optimizer = False
        for _ in range(3):
            self.model(self.batch()).sum().backward()
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.sub_(parameter.grad)
        self.assertEqual(self.written(), [])


class Recompute(ObservedTest):
    def run_checkpointed(self, reentrant):
        from torch.utils.checkpoint import checkpoint

        inner = small_model()
        model = nn.Module()
        model.inner = inner
        model.forward = lambda x: checkpoint(inner, x, use_reentrant=reentrant)
        model(torch.randn(3, 4, requires_grad=True)).sum().backward()

    def check(self, recomputed):
        forward = [s for s, _, _ in self.calls(slot="output:0", phase="forward")]
        self.assertEqual(forward, ["inner.0", "inner.1", "inner.2", "inner", ""])
        again = [(s, c) for s, c, _ in self.calls(slot="output:0", phase="recompute")]
        self.assertEqual(again, [(scope, 0) for scope in recomputed])
        self.assertEqual(self.steps(), [0])
        self.assertEqual([s for s, c, _ in self.calls(slot="grad_output:0") if c == 0],
                         ["", "inner", "inner.2", "inner.1", "inner.0"])
        self.assertEqual(self.calls(slot="loss"), [("", 0, "loss")])
        self.assertEqual(self.fake.slot(), (None, 0, "forward"))

    def test_checkpoint(self):
        self.run_checkpointed(False)
        self.check(["inner.0", "inner.1"])  # it stops when the last saved tensor is back

    def test_reentrant_checkpoint(self):
        self.run_checkpointed(True)
        self.check(["inner.0", "inner.1", "inner.2", "inner"])


class Clipping(ObservedTest):
    def setUp(self):
        super().setUp()
        self.model = nn.Sequential(nn.Linear(4, 2))
        self.model(torch.ones(3, 4)).square().sum().backward()
        self.left = {name: p.grad.clone() for name, p in self.model.named_parameters()}
        self.recorded = {}
        self.fake.on_tensor = self.keep

    def keep(self, tensor):
        for parameter in self.model.parameters():
            if tensor.address == parameter.grad.data_ptr():
                self.recorded[tensor.slot, tensor.call] = parameter.grad.clone()

    def test_what_is_gone_when_looked_at_is_clipped_all_the_same(self):
        for parameters in (self.model.parameters(), filter(lambda one: True, self.model.parameters()),
                           list(self.model.parameters()), self.model[0].weight):
            self.fake.messages.clear()
            for gradient, parameter in zip(self.left.values(), self.model.parameters()):
                parameter.grad.copy_(gradient)
            norm = nn.utils.clip_grad_norm_(parameters, 0.5)
            whole = self.model[0].weight.grad.norm() if isinstance(parameters, torch.Tensor) else (
                torch.cat([p.grad.flatten() for p in self.model.parameters()]).norm())
            self.assertAlmostEqual(whole.item(), 0.5, places=4)
            self.assertGreater(norm.item(), 0.5)
            told, = self.fake.tensors(slot="grad_norm", scope="", phase="backward")
            self.assertEqual(told.address, norm.data_ptr())
            self.assertTrue(torch.equal(self.recorded["grad_unclipped:weight", told.call], self.left["0.weight"]))

    def test_only_torch_runs_what_gives_the_parameters(self):
        model = self.model

        class OneShot:
            def __init__(self):
                self.left = iter(list(model.parameters()))

            def __iter__(self):
                return self.left

        class Drawn:
            def __iter__(self):
                return (one for one in model.parameters() if torch.rand(()) < 0.5)

        class Chooses(list):
            def __iter__(self):
                return iter([model[0].bias])

        def decaying():
            for one in model.parameters():
                one.mul_(0.9)  # under the function's own no_grad
                yield one

        def results():
            kinds = OneShot, Drawn, lambda: Chooses(model.parameters()), decaying, lambda: filter(torch.is_tensor, model.parameters())
            for make in kinds:
                for clip in nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_:
                    model.load_state_dict(weights)
                    for gradient, parameter in zip(self.left.values(), model.parameters()):
                        parameter.grad.copy_(gradient)
                    torch.manual_seed(3)
                    told = clip(make(), 0.5)
                    yield from (torch.zeros(()) if told is None else told, torch.get_rng_state())
                    yield from (one.clone() for parameter in model.parameters() for one in (parameter.detach(), parameter.grad))

        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        observed = list(results())
        self.fake.messages.clear()
        nn.utils.clip_grad_norm_(OneShot(), 0.5)
        self.assertEqual([t.slot for t in self.fake.tensors(phase="backward")],
                         ["grad_unclipped:weight", "grad_unclipped:bias", "grad_norm"])
        self.observer.remove()
        self.assertEqual([torch.equal(*both) for both in zip(observed, results())], [True] * len(observed))

    def test_parameters_of_a_model_are_looked_at_unless_it_gives_others(self):
        class Some(nn.Sequential):
            def named_parameters(self, *given, **named):
                asked.append(given)
                yield "bias", self[0].bias

        asked, chosen = [], Some(self.model[0])
        for model, slots in (self.model, ["weight", "bias"]), (nn.ModuleList([self.model]), ["weight", "bias"]), (chosen, []):
            self.fake.messages.clear()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            self.assertEqual([t.slot for t in self.fake.tensors(phase="backward")], ["grad_unclipped:" + slot for slot in slots])
        self.fake.messages.clear()
        nn.utils.clip_grad_norm_(chosen.parameters(), 0.5)
        self.assertEqual(len(asked), 2)
        self.assertEqual([t.slot for t in self.fake.tensors(phase="backward")], ["grad_unclipped:bias", "grad_norm"])

    def test_an_error_names_the_program_s_function(self):
        for clip in nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_:
            with self.assertRaisesRegex(TypeError, r"^%s\(\) missing" % clip.__name__):
                clip()

    def test_an_empty_generator_is_warned_of(self):
        with self.assertWarnsRegex(UserWarning, "empty generator"):
            nn.utils.clip_grad_norm_((p for p in ()), 1.0)

    def test_an_error_is_the_programs(self):
        self.model[0].bias.grad.fill_(float("nan"))
        with self.assertRaises(RuntimeError):
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, error_if_nonfinite=True)

    def test_once_for_one_call_by_whatever_name(self):
        from torch.nn.utils import clip_grad, clip_grad_norm_
        functions = [nn.utils.clip_grad_norm_, clip_grad.clip_grad_norm_, clip_grad_norm_]
        for function in functions:
            self.fake.messages.clear()
            function(self.model.parameters(), 1.0)
            self.assertEqual(len(self.fake.tensors(slot="grad_unclipped:weight")), 1)
        self.observer.remove()
        self.assertNotIn("convtrace_observer", nn.utils.clip_grad_norm_.__code__.co_filename)
        self.assertNotIn("convtrace_observer", clip_grad.clip_grad_norm_.__code__.co_filename)

    def test_it_is_compiled_whole(self):
        @torch.compile(backend="eager", fullgraph=True)
        def clip():
            return nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)

        self.assertGreater(clip().item(), 0.5)


if __name__ == "__main__":
    unittest.main()
