"""Values that a functional collective may still be writing when a module takes or returns them: they are recorded under
their place when the program waits, from the memory that it waited for, or counted."""
import ctypes
import unittest
import weakref

from support import ObservedTest, torch
from convtrace_observer.base import engine
from torch import nn

try:
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate
except ImportError as error:
    print("skipped: torch %s: %s" % (torch.__version__, error))
    raise SystemExit(77) from error


class Reduces(nn.Module):
    """Returns what its collective may still be writing, as a row-parallel layer does."""

    def forward(self, x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD)


class Returns(nn.Module):
    """Returns new tensors of one piece of memory. torch knows no work of theirs, so that nothing else keeps them."""

    def __init__(self):
        super().__init__()
        self.memory = bytearray(16)

    def forward(self):
        return functional.AsyncCollectiveTensor(torch.frombuffer(self.memory, dtype=torch.float32))


class AwaitedTest(ObservedTest):
    def setUp(self):
        super().setUp()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        self.read = {}  # (scope, slot) -> numbers that the engine finds in the memory
        self.fake.on_tensor = lambda t: self.read.setdefault((t.scope, t.slot), []).append(
            list((ctypes.c_float * t.shape[0]).from_address(t.address)) if t.dtype == 2 and len(t.shape) == 1 else None)

    def modules_values(self, **wanted):
        """Records of values, without those that collectives send and receive."""
        return self.fake.tensors(op=None, **wanted)

    def lost(self):
        return [(loss.reason, loss.count) for loss in self.fake.of("loss")]

    def next_step(self):
        """The next root forward in training mode opens a step once an optimizer has run."""
        weight = nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        weight.sum().backward()
        optimizer.step()
        nn.Identity()(torch.ones(1))


class AtTheWait(AwaitedTest):
    def test_an_output_is_read_when_the_program_waits(self):
        model = nn.Sequential(nn.Identity(), Reduces())
        y = model(torch.ones(3))
        self.assertEqual(self.fake.tensors(slot="output:0", scope="1"), [])
        self.assertFalse(y.completed)
        y.elem.fill_(7)  # the backend writes
        z = y + 1
        self.assertTrue(y.completed)
        self.assertEqual([self.read["1", "output:0"], self.read["", "output:0"]], [[[7.0] * 3]] * 2)
        record, = self.fake.tensors(slot="output:0", scope="1")
        self.assertEqual((record.phase, record.call, record.address, record.capture),
                         ("forward", 0, y.elem.data_ptr(), "stats"))
        z + y
        self.assertEqual(len(self.fake.tensors(slot="output:0", scope="1")), 1)
        self.assertEqual(self.lost(), [])

    def test_an_input_is_read_with_it_and_behind_it(self):
        model = nn.Sequential(Reduces(), nn.ReLU())
        model(torch.ones(3))
        self.assertEqual([(t.scope, t.slot) for t in self.modules_values() if t.scope],
                         [("0", "input:0"), ("0", "output:0"), ("1", "input:0"), ("1", "output:0")])
        self.assertEqual(self.read["0", "output:0"], self.read["1", "input:0"])
        producer, consumer = self.fake.tensors(scope="0", slot="output:0") + self.fake.tensors(scope="1", slot="input:0")
        self.assertEqual((producer.storage, producer.version, producer.address),
                         (consumer.storage, consumer.version, consumer.address))

    def test_a_view_that_waits_is_a_wait_for_its_base(self):
        y = Reduces()(torch.ones(6))
        y.view(2, 3) + 1
        self.assertFalse(y.completed)
        self.assertEqual(self.read["", "output:0"], [[2.0] * 6])
        nn.Identity()(y)  # complete, whatever this wrapper knows
        self.assertEqual(self.read["", "input:0"][-1], [2.0] * 6)
        self.assertFalse(y.completed)
        self.assertEqual(self.lost(), [])

    def test_memory_that_is_written_again_is_waited_for_again(self):
        x = torch.ones(3)
        torch.ops._c10d_functional.wait_tensor(x)
        for write in (lambda: torch.ops._c10d_functional.all_reduce_(x, "sum", "0"),
                      lambda: torch.ops._c10d_functional.all_gather_into_tensor_out(torch.ones(3), 1, "0", out=x)):
            self.fake.messages.clear()
            y = functional.AsyncCollectiveTensor(write())
            nn.Identity()(y)
            self.assertEqual(self.modules_values(), [])
            y.wait()
            self.assertEqual([t.slot for t in self.modules_values()], ["input:0", "output:0"])

    def test_inside_a_dtensor(self):
        mesh = init_device_mesh("cpu", (1,))
        y = DTensor.from_local(functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD), mesh, [Replicate()], run_check=False)
        nn.Identity()(y)
        self.assertEqual(self.modules_values(), [])
        y + 1
        self.assertEqual(self.read["", "output:0"], [[1.0] * 3])

    def test_gradients_of_what_was_returned_so_are_followed(self):
        linear = nn.Linear(3, 3)
        model = nn.Sequential(linear, Reduces())
        model(torch.ones(1, 3)).sum().backward()
        self.assertEqual(sorted(t.scope for t in self.fake.tensors(slot="grad_output:0", phase="backward")), ["", "0", "1"])
        self.assertEqual(self.lost(), [])

    def test_a_gradient_that_comes_so(self):
        class Sends(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, gradient):
                self.gradient = functional.all_reduce(gradient * 3, "sum", dist.group.WORLD)
                return self.gradient

        x = torch.ones(3, requires_grad=True)
        Sends.apply(nn.Identity()(x * 1)).sum().backward()
        self.gradient + 1
        self.assertEqual(self.read["", "grad_output:0"], [[3.0] * 3])


class NotAtAll(AwaitedTest):
    def test_what_is_never_waited_for_is_counted_and_left_alone(self):
        y = Returns()()
        self.next_step()
        self.assertEqual({t.shape for t in self.fake.tensors(slot="output:0")}, {(1,)})  # of the next step
        self.assertEqual(self.lost(), [(engine.LOST_COLLECTIVE_MISSED, 1)])
        self.assertFalse(y.completed)
        self.fake.messages.clear()
        y + 1
        self.assertEqual((self.modules_values(), self.lost()), ([], []))

    def test_memory_that_is_given_out_again_is_not_taken_for_it(self):
        model = Returns()
        y = model()
        address = y.elem.data_ptr()
        gone = []
        weakref.finalize(y.elem, gone.append, True)
        del y
        self.assertEqual(gone, [True])  # nothing holds it
        other = model.forward()
        self.assertEqual(other.elem.data_ptr(), address)
        other + 1
        self.assertEqual(self.modules_values(slot="output:0"), [])
        self.next_step()
        self.assertEqual(self.lost(), [(engine.LOST_COLLECTIVE_MISSED, 1)])

    def test_a_storage_with_other_memory_is_counted(self):
        y = functional.AsyncCollectiveTensor(torch.ones(3))
        nn.Identity()(y)
        y.elem.untyped_storage().resize_(1 << 20)
        y + 1
        self.assertEqual(self.modules_values(), [])
        self.assertEqual(self.lost(), [(engine.LOST_COLLECTIVE_MISSED, 1)] * 2)  # taken and returned


if __name__ == "__main__":
    unittest.main()
