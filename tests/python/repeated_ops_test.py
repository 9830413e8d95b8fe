"""Ops that a module calls several times in a step: the facts that tell whether only their tensors decide their results."""
import random
import sys
import unittest
from unittest import mock

from support import ObservedTest, torch

from convtrace_observer.calls import repeated_ops

nn = torch.nn


@torch.library.custom_op("convtrace_repeated::plus", mutates_args=())
def plus(x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
    if by == DRAWING:
        DRAWS[0]()
    return x + by


plus.register_autograd(lambda ctx, g: (g, None))
DRAWING, DRAWS = 7.0, [lambda: None]


class Call(torch.autograd.Function):
    """Takes anything."""

    @staticmethod
    def forward(ctx, x, *rest):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g, None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x, calls):
        x = self.linear(x)
        return sum(call(x) for call in calls)


class RepeatedOps(ObservedTest):
    def told(self, *steps):
        """@return the facts of ops as [(step, scope, op, value)], for a training whose root module makes these calls."""
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for calls in steps:
            model(torch.ones(1, 2), calls).sum().backward()
            optimizer.step()
        facts, step = [], None
        for message in self.fake.messages:
            if message.kind == "step":
                step = message.index
            elif message.kind == "event_fact" and message.name.startswith("op."):
                facts.append((step, message.scope, message.name.removeprefix("op."), message.value))
        return facts

    def alone(self, step=1, op="convtrace_repeated::plus"):
        return step, "", op, repeated_ops.TENSORS_ALONE

    def test_an_op_that_is_called_once_a_step_is_not_told(self):
        self.assertEqual(self.told(*[[plus]] * 3), [])

    def test_an_op_is_told_once_from_the_step_behind_the_first_with_two_calls(self):
        self.assertEqual(self.told([plus], [plus, plus], [plus], [plus, plus]), [self.alone(2)])

    def test_an_autograd_function_is_told_as_well(self):
        self.assertEqual(self.told(*[[Call.apply, plus, Call.apply]] * 3), [self.alone(op="Call")])

    def test_what_draws_is_told_by_each_generator(self):
        generators = {"torch": lambda: torch.rand(1), "random": random.random, "a normal number": lambda: random.gauss(0, 1)}
        if "numpy.random" in sys.modules:
            generators["numpy"] = sys.modules["numpy.random"].rand
        for name, draw in generators.items():
            with self.subTest(name), mock.patch.dict(vars(self.observer.repeated_ops), _known={}):
                self.fake.messages.clear()
                DRAWS[0] = draw
                facts = self.told(*[[lambda x: plus(x, DRAWING)] * 2] * 3)
                self.assertEqual([fact[3] for fact in facts], [repeated_ops.TENSORS_ALONE, repeated_ops.DRAWS])
                self.assertEqual(facts[0][0], facts[1][0])
        DRAWS[0] = lambda: None

    def test_draws_beside_the_op_are_nothing_to_it(self):
        drawing = [plus, lambda x: x * torch.rand(1) * random.random(), plus]
        self.assertEqual(self.told(*[drawing] * 3), [self.alone()])

    def test_other_arguments_in_one_step_are_told_once(self):
        facts = self.told(*[[plus, lambda x: plus(x, 2.0)]] * 3)
        self.assertEqual(facts, [self.alone(), (1, "", "convtrace_repeated::plus", repeated_ops.OTHER_ARGUMENTS)])

    def test_other_arguments_in_another_step_are_not(self):
        self.assertEqual(self.told(*[[lambda x, by=by: plus(x, by=by)] * 2 for by in (1.0, 2.0, 3.0)]), [self.alone()])

    def test_which_arguments_are_known(self):
        x = torch.ones(2)
        same = [(), (1,), ("a", None, True), (x, [x, {"of": (x, 2.5)}], torch.float32)]
        others = [(object(),), (nn.ReLU(),), (len,), (random.Random(1),), (torch.Generator(),), (x.to_sparse(),)]
        for rests, wanted in ((same, []), (others, [repeated_ops.OTHER_ARGUMENTS])):
            for rest in rests:
                with self.subTest(rest=str(rest)), mock.patch.dict(vars(self.observer.repeated_ops), _known={}):
                    self.fake.messages.clear()
                    facts = self.told(*[[lambda x, rest=rest: Call.apply(x, *rest).detach() + x] * 2] * 2)
                    self.assertEqual([fact[3] for fact in facts], [repeated_ops.TENSORS_ALONE, *wanted])

    def test_texts_of_unlike_arguments_are_unlike(self):
        texts = []
        for arguments in ((1,), (1.0,), (True,), ("1",), (-0.0,), (0.0,), ([1],), ((1,),), (1, (2, 3)), (1, (2,), 3), ({1: 2},)):
            parts = []
            self.assertTrue(self.observer.repeated_ops._flatten(arguments, parts, 0))
            texts.append(tuple(parts))
        self.assertEqual(len(set(texts)), len(texts))

    def test_generators_that_cannot_be_read_count_as_moved(self):
        marks = self.observer.repeated_ops._marks

        def unread(x):
            self.observer.repeated_ops._marks = lambda: (None,)
            x = plus(x)
            self.observer.repeated_ops._marks = marks
            return x

        self.assertEqual(self.told([unread, unread], [unread, unread]), [])
        self.assertEqual([fact[3] for fact in self.told([plus, plus], [plus, unread])],
                         [repeated_ops.TENSORS_ALONE, repeated_ops.DRAWS])

    def test_only_the_forward_pass_of_steps_with_values_counts(self):
        with torch.no_grad():
            self.told()
            model = Model()
            for _ in range(3):
                model(torch.ones(1, 2), [plus, plus])
        self.assertEqual(self.told(), [])
        self.fake.answer = 0
        self.assertEqual(self.told(*[[plus, plus]] * 3), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
