"""Custom ops are tagged: operands, values right at their exit, and watches on memory that an output
only borrows."""
import collections
import functools
import gc
import subprocess
import sys
import unittest
import warnings
from unittest import mock

from support import ObservedTest, torch

from convtrace_observer.base import replaced, values
from convtrace_observer.calls import ops

nn = torch.nn


def from_address(tensor):
    """@return a tensor in the memory of `tensor` that does not own it, as a faulty extension makes it."""
    import ctypes

    size = tensor.untyped_storage().nbytes()
    memory = (ctypes.c_char * size).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)


library = torch.library.Library("convtrace_test", "FRAGMENT")
library.define("double(Tensor x) -> Tensor")
library.define("borrow(Tensor x) -> Tensor")
library.define("scale_(Tensor(a!) x, float by) -> Tensor(a!)")
library.define("pair(Tensor[] xs, Tensor? skip=None) -> (Tensor, Tensor)")
library.impl("double", lambda x: x * 2, "CPU")
library.impl("borrow", from_address, "CPU")
library.impl("scale_", lambda x, by: x.mul_(by), "CPU")
library.impl("pair", lambda xs, skip=None: (xs[0] + 1, xs[1] + 1), "CPU")


@torch.library.custom_op("convtrace_test::python_op", mutates_args=())
def python_op(x: torch.Tensor) -> torch.Tensor:
    return x * 3


python_op.register_autograd(lambda ctx, g: g * 3)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, unused=None):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 3 * x ** 2 * g, None


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g


@torch.library.custom_op("convtrace_test::library_gradient", mutates_args=())
def library_gradient(x: torch.Tensor) -> torch.Tensor:
    return x * 2


library_gradient.register_autograd(lambda ctx, g: torch.ops.convtrace_test.double(g))


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x.mul_(2)


class Second(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return y * 2


class Lends(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy((x * 2).numpy())


class Exponential(torch.autograd.Function):
    """Keeps its output, and in `ctx` a tensor that is neither input nor output."""

    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(x, out)
        ctx.mask, ctx.several, ctx.number = x > 0, [x + 1, x + 2], 3
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[1]


class Kept(ObservedTest):
    def slots(self, phase):
        return [t.slot for t in self.fake.of("tensor") if t.phase == phase and t.slot.partition(":")[0] in (
            "saved", "ctx", "saved_shared", "grad_output_shared", "grad_output_after")]

    def test_what_an_op_keeps_is_hashed_behind_the_forward_and_before_the_backward(self):
        Exponential.apply(torch.randn(3, requires_grad=True) * 1).sum().backward()
        kept = ["saved:0", "saved:1", "ctx:mask", "ctx:several.0", "ctx:several.1"]
        self.assertEqual(self.slots("forward"), kept)
        self.assertEqual(self.slots("backward"), [*kept, "grad_output_after:0"])
        before, after = ([t for t in self.fake.of("tensor") if t.slot == "saved:1" and t.phase == phase]
                         for phase in ("forward", "backward"))
        self.assertEqual([(t.storage, t.version, t.address) for t in before], [(t.storage, t.version, t.address) for t in after])

    def test_what_hooks_pack_is_left_to_them(self):
        calls = []

        def pack(tensor):
            calls.append("pack")
            return tensor

        def unpack(tensor):
            calls.append("unpack")
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = Exponential.apply(torch.randn(3, requires_grad=True))
        y.sum().backward()
        self.assertEqual((self.slots("forward"), self.slots("backward")), ([], ["grad_output_after:0"]))
        self.assertEqual(calls, ["pack", "pack", "unpack", "unpack"])

    def test_memory_that_another_node_needs_is_looked_at_again_behind_the_backward(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)

            def forward(self, x):
                h = self.linear(x)
                if not self.last:
                    h = h.tanh()
                y = h + Exponential.apply(h)
                return self.last(y) if self.last else y

        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def behind(last=None):
            model.last = last
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            return [slot.partition("@")[0] for slot in self.slots("backward")[-2:]]

        self.assertEqual(behind(), ["ctx:several.1", "grad_output_after:0"])  # nothing is known of use counts yet
        self.assertEqual(behind(), ["grad_output_shared:0", "saved_shared:0"])  # the gradient of a sum is a part of its base
        self.assertEqual(behind(torch.square)[-1], "grad_output_shared:0")

    def test_what_functions_close_over_is_kept(self):
        class Closes(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                scaled = x.exp()
                if ctx is None:
                    empty = x
                ctx.plain, ctx.bound = lambda g: g * scaled, functools.partial(torch.mul, x + 1, out=x + 2)
                ctx.unset = lambda: empty
                return scaled + 0

            @staticmethod
            def backward(ctx, grad):
                return ctx.plain(grad)

        Closes.apply(torch.randn(3, requires_grad=True)).sum().backward()
        self.assertEqual(self.slots("forward"), ["ctx:plain.scaled", "ctx:bound.0", "ctx:bound.out"])

    def test_objects_that_ctx_alone_holds_are_read_without_their_code(self):
        ran = []

        class Meddler(type):
            def __getattribute__(cls, name):
                ran.append("class " + name)
                return type.__getattribute__(cls, name)

            def __eq__(cls, other):
                ran.append("class ==")
                return True

            __hash__ = type.__hash__

        class Parcel(metaclass=Meddler):
            __slots__ = ("__dict__", "slot", "empty")

            def __init__(self, x):
                dict.update(object.__getattribute__(self, "__dict__"), own=x.exp(), prop=None)
                object.__setattr__(self, "slot", x.sin())

            @property
            def prop(self):
                ran.append("property")

            def __getattribute__(self, name):
                ran.append(name)
                return object.__getattribute__(self, name)

            def __hash__(self):
                ran.append("hash")
                return 1

            def __len__(self):
                ran.append("len")
                return 1

        class Table(dict):
            def __iter__(self):
                ran.append("iterator")
                return dict.__iter__(self)

            __getitem__ = get = items = values = keys = __len__ = __iter__

        class Pair(collections.namedtuple("Pair", "one two")):
            def __iter__(self):
                ran.append("iterator")
                return tuple.__iter__(self)

            __len__ = __getitem__ = __iter__

        shared = {"mean": torch.ones(3)}

        class Keeps(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.parcel, ctx.table = Parcel(x), Table()
                dict.update(ctx.table, {"a": x.cos(), "not a name": x.tan(), Parcel(x): x + 1})
                ctx.pair, ctx.shared, ctx.large = Pair(x + 2, 2), shared, {"k%d" % i: x for i in range(65)}
                del ran[:]
                return x.exp()

            @staticmethod
            def backward(ctx, grad):
                return grad * 1

        Keeps.apply(torch.randn(3, requires_grad=True)).sum().backward()
        self.assertEqual(ran, [])
        self.assertEqual(self.slots("forward"), ["ctx:parcel.own", "ctx:parcel.slot", "ctx:table.a", "ctx:table.1", "ctx:table.2", "ctx:pair.0"])

    def test_a_gradient_that_a_backward_adds_itself_and_returns(self):
        class Adds(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight, returns):
                ctx.weight, ctx.returns = weight, returns
                return x * weight

            @staticmethod
            def backward(ctx, grad):
                ctx.weight.grad.add_(grad)
                return grad * 2, grad if ctx.returns else None, None

        for returns in True, False:
            weight = nn.Parameter(torch.ones(3))
            weight.grad = torch.zeros(3)
            for _ in range(3):
                Adds.apply(torch.ones(3, requires_grad=True), weight, returns).sum().backward()
            found = [t.slot for t in self.fake.of("tensor") if t.op == "AddsBackward" and t.slot.startswith(("grad_b", "grad_a"))]
            self.assertEqual(found, ["grad_before:1", "grad_after:1"] * 2 if returns else ["grad_before:1"] * 3)
            self.fake.messages.clear()

    def test_a_graph_that_was_freed_keeps_nothing(self):
        y = Exponential.apply(torch.randn(3, requires_grad=True)).sum()
        y.backward()
        with self.assertRaisesRegex(RuntimeError, "second time"):
            y.backward()


class Tags(ObservedTest):
    def one_op(self):
        op, = self.fake.of("op")
        return op

    def test_a_library_op_gives_operands_and_values_in_its_modules_scope(self):
        model = nn.Sequential(nn.Identity())
        model[0].forward = lambda x: torch.ops.convtrace_test.double(x)
        x = torch.randn(3, 4)
        y = model(x)
        rows = [(t.slot, t.capture, t.scope, t.call, t.phase) for t in self.fake.of("tensor")
                if t.op == "convtrace_test::double"]
        self.assertEqual(rows, [("input:0", "hash", "0", 0, "forward"),
                                ("input_after:0", "hash", "0", 0, "forward"),
                                ("output:0", "stats", "0", 0, "forward")])
        op = self.one_op()
        self.assertEqual((op.op, op.scope, op.schema_known, op.declared_alias),
                         ("convtrace_test::double", "0", True, False))
        self.assertEqual([(o.slot, o.is_output, o.address, o.bytes) for o in op.operands],
                         [("input:0", False, x.data_ptr(), 48), ("output:0", True, y.data_ptr(), 48)])

    def test_output_values_are_sent_before_the_op_message_and_the_consumer(self):
        torch.ops.convtrace_test.double.default(torch.randn(2))
        told = [getattr(m, "slot", m.kind) for m in self.fake.messages if m.kind in ("tensor", "op", "op_begin")]
        self.assertEqual(told, ["op_begin", "input:0", "input_after:0", "output:0", "op"])

    def test_what_an_op_is_known_to_write_is_marked_and_not_hashed_again(self):
        x, y = torch.ones(2), torch.ones(3)
        torch.ops.convtrace_test.scale_(x, 2.0)
        torch.ops.convtrace_test.scale_(x=x, by=2.0)
        InPlace.apply(x, y)
        InPlace.apply(torch.ones(2, requires_grad=True) * 1, y)
        written = [[(o.slot, o.written) for o in op.operands if not o.is_output] for op in self.fake.of("op")]
        self.assertEqual(written, [[("input:0", True)], [("input:0", True)], [("input:0", True), ("input:1", False)],
                                   [("input:0", True), ("input:1", False)]])
        # A gradient goes to the last one: mark_dirty would have made it the output.
        self.assertEqual([t.slot for t in self.fake.of("tensor") if "after" in t.slot],
                         ["input_after:1", "input_after:0", "input_after:1"])

    def test_outputs_whose_storage_cannot_be_resized_are_marked(self):
        x = torch.ones(8)
        Second.apply(x, torch.from_numpy(x.numpy()))
        Lends.apply(torch.ones(8))
        marked = [[(o.slot, o.borrows, o.written) for o in op.operands] for op in self.fake.of("op")]
        self.assertEqual(marked, [[("input:0", False, False), ("input:1", False, False), ("output:0", False, False)],
                                  [("input:0", False, False), ("output:0", True, False)]])

    def test_a_torch_that_does_not_tell_whether_a_storage_can_be_resized_marks_nothing(self):
        with mock.patch.object(torch, "UntypedStorage", object):
            reader = values.TensorReader(torch)
        self.assertFalse(reader.borrows(torch.from_numpy(torch.ones(8).numpy())))

    def test_the_inputs_behind_a_tensor_that_cannot_be_read_keep_their_slots(self):
        Second.apply(torch.ones(2).to_sparse(), torch.ones(3))
        self.assertEqual([t.slot for t in self.fake.of("tensor") if "input" in t.slot], ["input:1", "input_after:1"])
        self.assertEqual(sum(loss.count for loss in self.fake.of("loss")), 1)

    def test_libraries_of_custom_ops_are_told_before_the_first_call(self):
        nn.ReLU()(torch.ones(2))
        facts = {f.name: f.value for f in self.fake.of("fact")}
        self.assertIn("convtrace_test", facts["custom_op_libraries"].split())
        self.assertNotIn("aten", facts["custom_op_libraries"].split())

    def test_lists_and_optional_arguments(self):
        torch.ops.convtrace_test.pair([torch.ones(2), torch.ones(3)], skip=torch.ones(4))
        self.assertEqual([o.slot for o in self.one_op().operands],
                         ["input:0", "input:1", "input:2", "output:0", "output:1"])

    def test_bytes_span_the_elements_of_a_strided_operand(self):
        torch.ops.convtrace_test.double(torch.zeros(10, 4)[1:5:2, :2])
        self.assertEqual(self.one_op().operands[0].bytes, (2 * 4 + 2) * 4)

    def test_a_declared_alias_is_told(self):
        torch.ops.convtrace_test.scale_(torch.ones(2), 2.0)
        self.assertTrue(self.one_op().declared_alias)

    def test_a_python_custom_op_is_one_op_forward_and_one_backward_and_none_of_torchs_wrappers(self):
        x = torch.randn(3, requires_grad=True)
        python_op(x).sum().backward()
        self.assertEqual([op.op for op in self.fake.of("op")], ["convtrace_test::python_op", "convtrace_test::python_opBackward"])
        self.assertTrue(torch.equal(x.grad, torch.full((3,), 3.0)))

    def test_an_op_that_a_dispatch_mode_calls_again_is_one_call(self):
        class PassesOn(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))

        with PassesOn(), torch.no_grad():
            python_op(torch.ones(2))
        python_op(torch.ones(2))
        self.assertEqual([op.op for op in self.fake.of("op")], ["convtrace_test::python_op"] * 2)

    def test_the_code_of_a_function_is_told_once(self):
        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return 2 * x

            @staticmethod
            def backward(ctx, grad):
                return 2 * grad

        for _ in range(2):
            Doubled.apply(torch.ones(2, requires_grad=True))
        told = [one.name for one in self.fake.of("fact") if one.name.startswith("code.") and one.name.endswith(".Doubled")]
        self.assertEqual(len(told), 1)

    def test_an_autograd_function_is_tagged_forward_and_backward(self):
        x = torch.randn(3, requires_grad=True)
        Cube.apply(x).sum().backward()
        forward, backward = self.fake.of("op")
        self.assertEqual((forward.op, forward.phase, forward.schema_known),
                         ("Cube", "forward", False))
        self.assertEqual((backward.op, backward.phase), ("CubeBackward", "backward"))
        self.assertEqual([o.slot for o in backward.operands], ["grad_output:0", "grad_input:0"])
        self.assertTrue(torch.equal(x.grad, 3 * x.detach() ** 2))

    def test_backward_of_an_op_belongs_to_the_module_that_called_it(self):
        blocks = nn.Sequential(*(nn.ModuleDict({"after": nn.Linear(3, 3)}) for _ in range(2)))
        for block in blocks:
            block.forward = lambda x, after=block["after"]: after(library_gradient(Cube.apply(x)))
        blocks(torch.randn(2, 3, requires_grad=True)).sum().backward()
        self.assertEqual([(op.op, op.scope) for op in self.fake.of("op") if op.phase == "backward"],
                         [("convtrace_test::double", "1"), ("convtrace_test::library_gradientBackward", "1"), ("CubeBackward", "1"),
                          ("convtrace_test::double", "0"), ("convtrace_test::library_gradientBackward", "0"), ("CubeBackward", "0")])
        gradients = [(t.slot, t.scope) for t in self.fake.of("tensor") if t.slot == "grad_output:0" and t.op is None]
        self.assertEqual(gradients, [("grad_output:0", name) for name in ("", "1", "1.after", "0", "0.after")])

    def test_a_function_that_returns_its_input_has_one_storage(self):
        Same.apply(torch.randn(3, requires_grad=True))
        given, returned = self.one_op().operands
        self.assertEqual(given.storage, returned.storage)

    def test_torchs_own_ops_and_functions_are_not_tagged(self):
        from torch.utils.checkpoint import checkpoint

        x = torch.randn(3, requires_grad=True)
        torch.ops.aten.sin(x)
        torch.ops.aten.sin.default(x)
        checkpoint(torch.sin, x, use_reentrant=True).sum().backward()
        self.assertEqual(self.fake.of("op"), [])

    def test_a_failing_op_raises_its_own_error_and_leaves_no_record(self):
        with self.assertRaises(RuntimeError):
            torch.ops.convtrace_test.pair([torch.ones(2), "no tensor"])
        with self.assertRaises(TypeError):
            Cube.apply(None)
        self.assertEqual(self.fake.of("op"), [])

    def test_ops_are_told_also_where_no_value_is_wanted(self):
        self.fake.answer = 0
        torch.ops.convtrace_test.double(torch.randn(2))
        self.fake.messages.clear()
        torch.ops.convtrace_test.double(torch.randn(2))
        self.assertEqual([m.kind for m in self.fake.messages], ["op_begin", "op"])


class Namespaces(unittest.TestCase):
    def test_every_namespace_of_a_bare_torch_is_known(self):
        code = ("import torch, torch._dynamo, torch._inductor, torch.distributed.fsdp;"
                "print(*{n.split('::')[0] for n in torch._C._dispatch_get_all_op_names()})")
        found = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
        self.assertEqual(found - ops.TORCH_NAMESPACES, set())


class Replaced(unittest.TestCase):
    def test_classmethods_of_python_and_of_c(self):
        """autograd.Function.apply is one of Python up to PyTorch 2.14, and of C from 2.15 on."""
        class Keys(dict):
            of_c = vars(dict)["fromkeys"]

            @classmethod
            def of_python(cls, keys, value=None):
                return cls.of_c(keys, value)

        class More(Keys):
            pass

        all_replaced, seen = replaced.Replaced(), []
        for name in "of_c", "of_python":
            def make(original):
                def replacement(cls, *args):
                    seen.append(cls)
                    return original(cls, *args)
                return replacement

            before = vars(Keys)[name]
            all_replaced.wrap(Keys, name, make)
            result = getattr(More, name)("ab", 1)
            self.assertEqual((type(result), result), (More, {"a": 1, "b": 1}))
            self.assertIn(More, seen)
            seen.clear()
            all_replaced.put_back()
            self.assertIs(vars(Keys)[name], before)


class Traced(ObservedTest):
    """Calls that PyTorch only records have no values."""

    def test_by_jit(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            traced = torch.jit.trace(lambda x: torch.ops.convtrace_test.double(x) + 1, torch.zeros(2), check_trace=False)
        self.assertEqual(self.fake.of("op"), [])
        self.assertEqual(traced(torch.ones(2)).tolist(), [3, 3])

    def test_by_an_export_without_dynamo(self):
        class Model(nn.Module):
            def forward(self, x):
                return torch.ops.convtrace_test.python_op(x) + 1

        python_op.register_fake(torch.empty_like)
        exported = torch.export.export(Model(), (torch.zeros(2),), strict=False)
        self.assertEqual(self.fake.of("op"), [])
        self.assertEqual(exported.module()(torch.ones(2)).tolist(), [4, 4])


class Watches(ObservedTest):
    def setUp(self):
        super().setUp()
        self.fake.watch_ops = True

    def borrow(self):
        x = torch.randn(1000)
        return x, torch.ops.convtrace_test.borrow(x)

    def test_a_watch_is_answered_with_the_stack_of_the_op(self):
        x, y = self.borrow()
        stack, = self.fake.of("op_stack")
        self.assertTrue(stack.frames[0].startswith("borrow (" + __file__), stack.frames[:3])
        self.assertFalse([f for f in stack.frames if "convtrace_observer" in f])

    def test_the_death_of_the_input_is_reported_once_with_its_place(self):
        x, y = self.borrow()
        owner = self.fake.of("op")[0].operands[0].storage
        view = x[10:]
        del x
        self.assertEqual(self.fake.of("storage_dead"), [])
        del view  # the last owner
        dead, = self.fake.of("storage_dead")
        self.assertEqual(dead.storage, owner)
        self.assertTrue(dead.frames[0].startswith("test_the_death_of_the_input"), dead.frames[:3])

    def test_the_death_of_the_output_is_reported_too(self):
        x, y = self.borrow()
        output = self.fake.of("op")[0].operands[1].storage
        del y
        gc.collect()
        self.assertEqual([d.storage for d in self.fake.of("storage_dead")], [output])

    def test_without_a_watch_no_death_is_reported(self):
        self.fake.watch_ops = False
        x, y = self.borrow()
        del x, y
        self.assertEqual(self.fake.of("storage_dead") + self.fake.of("op_stack"), [])

    def test_a_watch_keeps_nothing_alive(self):
        x, y = self.borrow()
        del x, y
        gc.collect()
        self.assertEqual(len(self.fake.of("storage_dead")), 2)
        self.assertEqual(self.observer.watches._references, {})


if __name__ == "__main__":
    unittest.main()
