"""The observer's functions in C++ (base/native.py) and in Python send the same messages about a program."""
import collections
import dataclasses
import sys
import unittest
from unittest import mock

from support import fake_engine, torch
from convtrace_observer.base import native, scopes, values
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    count: int


Pair = collections.namedtuple("Pair", "first second")


class Attention(nn.Module):
    """Takes and returns what is usual and what is not."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x, mask=None, *, scale=None, states=(), config=None):
        x = self.inner(x) * (1 if scale is None else scale)
        return {"x": x, "more": [x.transpose(0, 1), (mask, None)], "pair": Pair(x, x + 1)}


class Wrapped(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.register_buffer("shift", torch.ones(8).as_subclass(kind))
        self.weight = nn.Parameter(torch.ones(8).as_subclass(kind))

    def forward(self, x):
        return x.as_subclass(self.kind) + self.shift + self.weight


class Subclass(torch.Tensor):
    pass


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8, padding_idx=0)
        self.norm = nn.BatchNorm1d(8)
        self.attention = Attention()
        self.twice = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.again = nn.Linear(8, 8)
        self.wrapped = Wrapped(Subclass)
        self.spectrum = nn.Identity()
        self.scripted = torch.jit.script(nn.Sequential(nn.BatchNorm1d(8)))
        self.output = nn.Identity()
        self.takes_sparse = False  # DLPack raises, and tensors are read by their attributes from then on

    def forward(self, indices):
        x = self.norm(self.embedding(indices))
        found = self.attention(x, None, scale=torch.ones(()), states=(x, [x]), config=Output(x, 1))
        x = found["x"] + found["pair"].second
        x = self.twice(self.twice(x))
        self.wrapped(x)
        self.spectrum(torch.fft.fft(x))
        self.spectrum(torch.fft.fft(x).conj())
        self.spectrum(torch.fft.fft(x).conj().imag)
        self.spectrum(x.half()), self.spectrum(x.to(torch.float8_e5m2)), self.spectrum(x.double())
        self.spectrum(x[:, ::2].expand(3, *x[:, ::2].shape)), self.spectrum(torch.empty(0, 3)), self.spectrum([3, "text", None])
        self.spectrum(torch.ones(200, 200)), self.spectrum(torch.ones(200, 200)[:, 0]), self.scripted(x)
        self.wrapped.shift.add_(1)
        self.spectrum(torch.zeros(3, dtype=torch.bool)), self.spectrum(torch.zeros(3, dtype=torch.uint16))
        self.spectrum(torch.zeros(3, dtype=torch.float8_e8m0fnu)), self.spectrum(torch.ones(4, 0)[1:])
        taken = torch.ones(10)[3:]
        taken.untyped_storage().resize_(0)
        self.spectrum(taken), self.spectrum(torch.ones(3, dtype=torch.int8)), self.spectrum(torch.ones(3, dtype=torch.uint8))
        if hasattr(torch, "uint4"):  # DLPack describes it as it does uint8
            self.spectrum(torch.ones(16, dtype=torch.uint8).view(torch.uint4))
        self.spectrum(torch._efficientzerotensor(3)), self.spectrum(torch.ones(3, dtype=torch.bfloat16)[1])
        with torch.inference_mode():
            self.spectrum(torch.zeros(2))
        self.spectrum(x.to_sparse() if self.takes_sparse else x)
        x = checkpoint(self.again, x, use_reentrant=False)
        return self.output(Output(x, 2)).hidden


def program(train):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD([
        {"params": [p for n, p in model.named_parameters() if n != "embedding.weight"], "momentum": 0.9},
        {"params": [model.embedding.weight, nn.Parameter(torch.ones(3))]}], lr=0.1)
    for _ in range(3):
        train(model, optimizer)
    model.eval()
    with torch.no_grad():
        model(torch.arange(6))
    try:
        model.twice(torch.ones(2, 3))
    except RuntimeError:
        pass


def train(model, optimizer):
    model.train()
    optimizer.zero_grad()
    model(torch.arange(6)).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def train_sparse(model, optimizer):
    model.takes_sparse = True
    train(model, optimizer)


def train_under_a_mode(model, optimizer):
    with torch.device("cpu"):  # a default device is a mode that sees each access of a tensor's attribute
        train(model, optimizer)


def train_unusual_groups(model, optimizer):
    for group in optimizer.param_groups:
        group["params"] = tuple(group["params"])
    train(model, optimizer)


class Parts(unittest.TestCase):
    def said(self, part, train):
        """@return all messages of the program, with addresses and identities numbered in order of appearance."""
        fake, observer = fake_engine.observe(torch, part=part)
        try:
            program(train)
        finally:
            observer.remove()
        self.assertEqual(fake.errors, [])
        seen, said = {}, []
        for message in fake.messages:
            values = vars(message)
            if "storage" in values:
                values["storage"] = seen.setdefault(values["storage"], len(seen))
                values["address"] -= values.pop("base")
            if message.kind not in ("spent", "fact") and not (message.kind == "event_fact" and message.name.startswith("rng.")):
                said.append(values)
        return said

    def check(self, train):
        native, python = self.said("native", train), self.said("python", train)
        for index, (one, other) in enumerate(zip(native, python)):
            self.assertEqual(one, other, "message %d" % index)
        self.assertEqual(len(native), len(python))
        self.assertGreater(len([one for one in native if one["kind"] == "tensor"]), 150)
        self.assertEqual([one for one in native if one["kind"] == "diagnostic"], [])

    def test_a_program_of_all_kinds(self):
        self.check(train)

    def test_with_groups_that_the_program_has_changed(self):
        self.check(train_unusual_groups)

    def test_under_a_mode_of_the_program(self):
        self.check(train_under_a_mode)

    def test_with_tensors_that_dlpack_does_not_describe(self):
        self.check(train_sparse)

    def test_states_of_threads_that_end_before_the_thread(self):
        """The states are those of gevent's threading.local, which has one for each greenlet."""
        class Local:
            def __new__(cls, *args):
                made = object.__new__(cls)
                made.__dict__.update(args=args, greenlet=None)
                return made

            def __getattribute__(self, name):
                fields = object.__getattribute__(self, "__dict__")
                if name == "state" and fields["greenlet"] != greenlets[-1]:
                    fields["greenlet"] = greenlets[-1]
                    fields["state"] = scopes.Thread(*fields["args"])
                return object.__getattribute__(self, name)

        greenlets = [0]
        with mock.patch.object(scopes, "Threads", type("Threads", (Local,), {"are_pythons": scopes.Threads.are_pythons})):
            fake, observer = fake_engine.observe(torch, part="native")
        try:
            model = nn.Sequential(nn.Linear(2, 2))
            for number in range(1, 50):
                greenlets.append(number)
                model(torch.ones(1, 2)).sum().backward()
        finally:
            observer.remove()
        self.assertEqual([m.text for m in fake.of("diagnostic")], [])
        self.assertEqual(len(fake.tensors(scope="0", slot="output:0")), 49)

    def test_a_copy_on_write_tensor_is_not_copied(self):
        for part in ("native", "python"):
            _, observer = fake_engine.observe(torch, part=part)
            try:
                clone = torch._lazy_clone(torch.ones(3))
                nn.Identity()(clone)
                self.assertTrue(torch._C._is_cow_tensor(clone), part)
            finally:
                observer.remove()

    def test_what_is_said_of_a_tensor_and_what_is_left_to_python(self):
        _, observer = fake_engine.observe(torch, part="native")
        read = observer.read
        base = torch.arange(24.0).reshape(2, 3, 4)
        complex_ones = torch.ones(4, dtype=torch.complex64)
        with torch.inference_mode():
            inference = torch.ones(3)
        told = (base, base[1, :, 2], base.transpose(0, 2), base.expand(5, 2, 3, 4), nn.Parameter(torch.ones(2)),
                torch.ones(()), torch.empty(0, 3), torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.int8),
                torch.ones(3, dtype=torch.bfloat16), complex_ones, inference)
        left = (complex_ones.conj(), complex_ones.conj().imag, torch.ones(3, device="meta"), torch.ones(3).as_subclass(Subclass),
                torch.ones(3).to_sparse(), 7)
        try:
            with read.unobserved():
                for tensor in told:
                    found = read.memory(tensor)
                    self.assertIsNotNone(found, tensor)
                    self.assertEqual(values.Memory(*found), read._describe(tensor))
                self.assertEqual([read.memory(one) for one in left], [None] * len(left))
                self.assertIsNotNone(read.memory(base))
        finally:
            observer.remove()

    def test_a_class_without_slots_leaves_all_to_python(self):
        class Place:
            id = step = calls = recomputes = inputs = parameters = None

        fake, observer = fake_engine.observe(torch, part="native")
        observer.remove()
        needed = {**observer._needed_by_hot_functions(torch), "Place": Place}
        reference = observer._hot_functions()
        chosen = native.choose(observer.port, torch, observer.read, reference, needed)
        self.assertIs(chosen.enter, reference["enter"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
