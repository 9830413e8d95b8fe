"""Evaluation between steps of training: it has a phase of its own and changes no key of training."""
import unittest

from steps_test import StepsTest, small_model
from support import fake_engine, torch

nn = torch.nn
functional = nn.functional


class Evaluation(StepsTest):
    def test_evaluation_between_steps_belongs_to_the_coming_step(self):
        self.train()
        with torch.no_grad():
            self.model(self.batch())
            self.model(self.batch())
        self.train()
        self.train()
        self.assertEqual(self.roots(), [
            (0, "forward", 0), (1, "evaluation", 0), (1, "evaluation", 1), (1, "forward", 0),
            (2, "forward", 0)])

    def test_evaluation_changes_no_key_of_training(self):
        def of_training(passes):
            torch.manual_seed(0)
            self.model = small_model()
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.observer.remove()
            self.fake, self.observer = fake_engine.observe(torch)
            for _ in range(3):
                self.evaluate(passes)
                self.train(batches=2)
            self.evaluate(passes)
            keys, step = [], None
            for message in self.fake.messages:
                if message.kind == "step":
                    step = message.index
                elif message.kind == "tensor" and message.phase != "evaluation":
                    keys.append((step, message.phase, message.scope, message.call, message.slot))
            return keys

        without = of_training(0)
        for passes in (2, 3, 5):
            self.assertEqual(of_training(passes), without)
            self.assertEqual(len(self.fake.tensors(phase="evaluation", scope="", slot="input:0")), 4 * passes)

    def test_evaluation_records_inputs_and_outputs_under_its_phase(self):
        self.evaluate(passes=1)
        rows = [(t.phase, t.scope, t.call, t.slot, t.capture) for t in self.fake.of("tensor")
                if not t.slot.startswith("param")]
        self.assertEqual(rows, [
            ("evaluation", "", 0, "input:0", "stats"),
            ("evaluation", "0", 0, "input:0", "hash"), ("evaluation", "0", 0, "output:0", "stats"),
            ("evaluation", "1", 0, "input:0", "hash"), ("evaluation", "1", 0, "output:0", "stats"),
            ("evaluation", "2", 0, "input:0", "hash"), ("evaluation", "2", 0, "output:0", "stats"),
            ("evaluation", "", 0, "output:0", "stats")])

    def test_eval_mode_without_no_grad_is_evaluation_with_its_criterion(self):
        """The criterion is evaluation, too, if a program forgets no_grad."""
        criterion = nn.MSELoss()
        for _ in range(2):
            self.model.eval()
            criterion(self.model(self.batch()), torch.zeros(3, 2)).item()
            self.model.train()
            self.optimizer.zero_grad()
            criterion(self.model(self.batch()), torch.zeros(3, 2)).backward()
            self.optimizer.step()
        one = [(0, "evaluation", 0), (0, "evaluation", 0), (0, "forward", 0), (0, "forward", 0)]
        self.assertEqual(self.roots(), one + [(1, phase, call) for _, phase, call in one])

    def test_labels_of_evaluation_do_not_count_with_those_of_training(self):
        labels = torch.tensor([0, 1, 1])
        self.model.eval()
        with torch.no_grad():
            functional.cross_entropy(self.model(self.batch()), labels)
        self.model.train()
        functional.cross_entropy(self.model(self.batch()), labels).backward()
        self.optimizer.step()
        self.assertEqual([(t.phase, t.call) for t in self.fake.tensors(slot="input:1", scope="")],
                         [("evaluation", 0), ("forward", 0)])

    def test_a_model_trained_in_eval_mode_is_trained(self):
        """Its batch norms are frozen, or the input is what is optimized. The first call is known too late."""
        self.model.eval()
        for _ in range(3):
            self.model(self.batch()).sum().backward()
            self.optimizer.step()
        self.assertEqual(self.roots(), [(0, "evaluation", 0), (1, "forward", 0), (2, "forward", 0)])

    def test_the_mode_is_told_of_training_behind_an_evaluation_in_one_step(self):
        for _ in range(3):
            self.model.eval()
            self.model(self.batch()).sum().backward()
            self.optimizer.step()
            with torch.no_grad():
                self.model(self.batch())
        self.assertEqual({f.scope: f.value for f in self.fake.of("event_fact") if f.name == "mode"}, dict.fromkeys(["", *"012"], "eval"))

    def test_the_mode_is_told_of_an_evaluation_behind_training_in_one_step(self):
        self.train()
        self.model(self.batch()).sum().backward()
        self.model.eval()
        self.model[1].train()
        with torch.no_grad():
            self.model(self.batch())
        told = {f.scope: f.value for f in self.fake.of("event_fact") if f.name == "mode.evaluation"}
        self.assertEqual(told, {"1": "train"})

    def test_forces_of_an_evaluated_energy_are_no_training(self):
        """A model may differentiate to compute what it gives out."""
        self.train()
        for _ in range(3):
            self.model.eval()
            for _ in range(2):
                x = self.batch().requires_grad_()
                torch.autograd.grad(self.model(x).sum(), x)
            self.model.train()
            self.train()
        for step in range(1, 4):
            self.assertEqual([(phase, call) for at, phase, call in self.roots() if at == step],
                             [("evaluation", 0), ("evaluation", 1), ("forward", 0)])

    def test_a_teacher_in_front_of_its_student_or_behind_it(self):
        teacher = small_model().eval()
        for _ in range(2):
            with torch.no_grad():
                target = teacher(torch.ones(3, 4))
            out = self.model(torch.ones(3, 4))
            with torch.no_grad():
                target += teacher(torch.ones(3, 4))
            (out - target).square().sum().backward()
            self.optimizer.step()
        one = [(0, "evaluation", 0), (0, "forward", 0), (0, "forward", 0)]
        self.assertEqual(self.roots(), one + [(1, phase, call) for _, phase, call in one])

    def test_rollouts_of_a_policy_are_evaluation_and_updates_are_steps(self):
        for _ in range(2):
            with torch.no_grad():
                for _ in range(3):
                    self.model(torch.ones(1, 4))  # PPO: acts, then learns from that in two epochs
            self.train()
            self.train()
        self.assertEqual(self.roots(), [
            (step, phase, call) for first in (0, 2) for step, phase, call in [
                (first, "evaluation", 0), (first, "evaluation", 1), (first, "evaluation", 2),
                (first, "forward", 0), (first + 1, "forward", 0)]])

    def test_a_target_network_behind_the_one_that_learns(self):
        """DQN: acts, then learns once."""
        target = small_model()
        for _ in range(2):
            with torch.no_grad():
                self.model(torch.ones(1, 4))
            q = self.model(torch.ones(3, 4))
            with torch.no_grad():
                best = target(torch.ones(3, 4))
            (q - best).square().sum().backward()
            self.optimizer.step()
        # The target is a second model, whose calls are counted by themselves.
        one = [(0, "evaluation", 0), (0, "forward", 0), (0, "forward", 0)]
        self.assertEqual(self.roots(), [
            (step, phase, call) for step in range(2) for _, phase, call in one])

    def test_validation_between_two_micro_batches(self):
        for passes in (0, 2):
            with self.subTest(passes=passes):
                self.fake.messages.clear()
                self.model(self.batch()).sum().backward()
                self.evaluate(passes)
                self.model(self.batch()).sum().backward()
                self.optimizer.step()
                self.assertEqual([(phase, call) for _, phase, call in self.roots() if phase == "forward"],
                                 [("forward", 0), ("forward", 1)])

    def test_what_follows_evaluation_is_about_it_until_training_goes_on(self):
        phases = []
        self.evaluate()
        phases.append(self.fake.slot()[2])
        self.model(self.batch())
        phases.append(self.fake.slot()[2])
        self.assertEqual(phases, ["evaluation", "forward"])
        self.model.eval()


if __name__ == "__main__":
    unittest.main()
