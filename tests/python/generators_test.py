"""States of random generators, as facts of the trace."""
import itertools
import random
import sys
import unittest
from unittest import mock

from support import ObservedTest, fake_engine, torch
from torch import nn


class GeneratorFacts(ObservedTest):
    def states(self):
        batch = self.observer.threads.state.batch
        self.observer.generators.tell(batch)
        batch.submit()
        found = {f.name: f.value for f in self.fake.of("event_fact") if f.name.startswith("rng.")}
        self.fake.messages.clear()
        return found

    def test_a_state_is_told_first_and_when_a_number_was_drawn(self):
        random.seed(1)
        first = self.states()
        self.assertLessEqual({"rng.torch", "rng.python"}, set(first))
        self.assertEqual(self.states(), {})
        torch.rand(1)
        self.assertEqual(set(self.states()), {"rng.torch"})
        random.random()
        self.assertEqual(set(self.states()), {"rng.python"})
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].rand()
            self.assertEqual(set(self.states()), {"rng.numpy"})
        random.seed(1)
        torch.manual_seed(0)
        again = self.states()
        self.assertEqual({name: again[name] for name in ("rng.torch", "rng.python")},
                         {name: first[name] for name in ("rng.torch", "rng.python")})

    def test_pythons_state_is_what_getstate_says(self):
        random.seed(2)
        told = []
        for draw in (random.random, lambda: random.gauss(0, 1), lambda: random.gauss(0, 1), lambda: None, random.random):
            draw()  # the second of two normal numbers draws no word
            told.append(self.states().get("rng.python"))
            _, words, kept = random.getstate()
            if told[-1] is not None:
                self.assertEqual(told[-1], "%016x" % (hash((words, kept or 0.0)) & 0xFFFFFFFFFFFFFFFF))
        self.assertEqual([one is None for one in told], [False, False, False, True, False])

    def test_another_generator_in_place_of_pythons(self):
        self.states()
        self.assertIs(self.observer.marks._python[0], random._inst)
        mine = random.Random(5)
        with mock.patch.object(random, "_inst", mine), mock.patch.object(random, "getstate", mine.getstate):
            told = self.states()["rng.python"]
            mine.random()
            self.assertNotEqual(self.states()["rng.python"], told)

    def test_a_generator_without_a_state(self):
        with mock.patch.object(random, "_inst", random.SystemRandom()), mock.patch.object(random, "getstate", random.SystemRandom().getstate):
            fake, observer = fake_engine.observe(torch)
            try:
                observer.generators.tell(observer.threads.state.batch)
                observer.threads.state.batch.submit()
            finally:
                observer.remove()
        told = {f.name for f in fake.of("event_fact")}
        self.assertIn("rng.torch", told)
        self.assertNotIn("rng.python", told)

    def test_numpys_state_is_told_where_a_kept_normal_number_alone_is_drawn(self):
        numpy = sys.modules.get("numpy.random")
        if numpy is None:
            self.skipTest("no numpy")
        numpy.seed(1)
        told = []
        for draws in (0, 1, 1, 0):
            numpy.randn(draws)
            told.append(self.states().get("rng.numpy"))
        self.assertEqual([one is None for one in told], [False, False, False, True])
        self.assertEqual(len(set(told)), 4)

    def test_reading_draws_nothing_and_calls_no_operator(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Refuse(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                raise AssertionError(function)

        before = torch.get_rng_state(), random.getstate()
        with Refuse(), torch.device("meta"):
            told = self.states()
        self.assertIn("rng.torch", told)
        self.assertTrue(torch.equal(before[0], torch.get_rng_state()))
        self.assertEqual(before[1], random.getstate())

    def test_each_step_begins_with_them(self):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.rand(1, 2)).sum().backward()
            optimizer.step()
        kinds = [m.kind if m.kind == "step" else m.name for m in self.fake.messages
                 if m.kind == "step" or m.kind == "event_fact" and m.name == "rng.torch"]
        self.assertEqual(kinds, ["step", "rng.torch"] * 3)

    def test_training_behind_evaluation_begins_with_them_again(self):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for draws in (False, True):
            with torch.no_grad():
                model(torch.rand(1, 2))
                x = torch.rand(1, 2) if draws else torch.ones(1, 2)
            for _ in range(2):
                model(x).sum().backward()
            optimizer.step()
        told = [(m.kind, getattr(m, "phase", None)) for m in self.fake.messages
                if m.kind == "step" or m.kind == "event_fact" and m.name == "rng.torch"
                or m.kind == "tensor" and m.slot == "input:0"]
        evaluation, training = ("tensor", "evaluation"), ("tensor", "data")
        self.assertEqual(told, [
            ("step", None), ("event_fact", None), evaluation, training, training,
            ("step", None), ("event_fact", None), evaluation, ("event_fact", None), training, training])


class Marks(ObservedTest):
    def read(self):
        with self.observer.read.unobserved():
            return self.observer.marks.read()

    def test_each_draw_changes_them_and_nothing_else(self):
        numbers, seeds = random.Random(1), itertools.count()
        draws = [lambda: torch.rand(1), lambda: torch.rand(624), lambda: torch.rand(1248), lambda: torch.randn(()),
                 lambda: torch.randn(()), random.random, lambda: [random.getrandbits(32) for _ in range(624)],
                 lambda: random.gauss(0, 1), lambda: random.gauss(0, 1), lambda: torch.manual_seed(next(seeds)),
                 lambda: random.seed(next(seeds))]
        if "numpy.random" in sys.modules:
            numpy = sys.modules["numpy.random"]
            draws += [numpy.rand, lambda: numpy.bytes(4 * 624), lambda: numpy.seed(next(seeds))]
        self.assertNotIn(None, self.read())
        for number, draw in enumerate(numbers.choices(draws, k=200) + draws):
            before = self.read()
            self.assertEqual(self.read(), before)
            draw()
            self.assertNotEqual(self.read(), before, number)

    def test_another_generator_in_place_of_pythons(self):
        self.read()
        mine = random.Random(5)
        with mock.patch.object(random, "_inst", mine), mock.patch.object(random, "getstate", mine.getstate):
            before = self.read()
            self.assertNotIn(None, before)
            mine.random()
            self.assertNotEqual(self.read(), before)
        with mock.patch.object(random, "_inst", random.SystemRandom()):
            self.assertIn(None, self.read())

    def test_another_generator_in_place_of_torchs(self):
        self.read()
        self.assertIsNotNone(self.observer.marks._cpu[1])
        mine = torch.Generator().manual_seed(3)
        without_memory = mock.Mock(spec=["get_state"], get_state=mine.get_state)
        for generator, lies_in_memory in (mine, True), (without_memory, False):
            with mock.patch.object(torch, "default_generator", generator):
                for draw in torch.rand, torch.randn, torch.randn:
                    before = self.read()
                    self.assertNotIn(None, before)
                    self.assertEqual(self.read(), before)
                    draw((), generator=mine)
                    self.assertNotEqual(self.read(), before)
            self.assertEqual(self.observer.marks._cpu[1] is not None, lies_in_memory)

    def test_another_kind_of_numpys_generator(self):
        numpy = sys.modules.get("numpy.random")
        if not hasattr(numpy, "set_bit_generator"):
            self.skipTest("no numpy of 1.24 or later")
        kept = numpy.get_bit_generator()
        self.addCleanup(numpy.set_bit_generator, kept)
        numpy.set_bit_generator(numpy.PCG64(1))
        self.assertIn(None, self.read())
        numpy.set_bit_generator(numpy.MT19937(1))
        before = self.read()
        numpy.rand()
        self.assertNotEqual(self.read(), before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
