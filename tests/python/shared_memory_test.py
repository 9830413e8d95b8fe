"""Memory with two owners: parameters of an optimizer, gradients, states; outputs of an op that its next call overwrites;
buffers that a recomputation writes."""
import copy
import unittest
from random import Random as random_of
from unittest import mock

from support import ObservedTest, torch
from torch.utils.checkpoint import checkpoint

from convtrace_observer.base import values

nn = torch.nn


def net():
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def flat(parameters, less=0):
    """Yields each parameter with its view of one buffer; the views are side by side, or overlap by `less` elements."""
    buffer, at = torch.zeros(500), 0
    for one in parameters:
        yield one, buffer[at:at + one.numel()].view_as(one)
        at += max(1, one.numel() - less)


class Owners(ObservedTest):
    def train(self, model, optimizer, steps=4, keep=True, handed=lambda step: None):
        for step in range(steps):
            optimizer.zero_grad(set_to_none=not keep)
            model(torch.randn(3, 4)).pow(2).mean().backward()
            handed(step)
            optimizer.step()

    def shared(self):
        """@return [(step, scope, slot, rest)] of the facts about shared memory."""
        found, step = [], None
        for message in self.fake.messages:
            if message.kind == "step":
                step = message.index
            elif message.kind == "event_fact" and message.name.startswith("shares."):
                found.append((step, message.scope, message.name.removeprefix("shares."), message.value))
        return found


class Parameters(Owners):
    def test_one_tensor_for_two(self):
        model = net()
        model[2].weight.data = model[0].weight.data
        self.train(model, torch.optim.Adam(model.parameters()))
        self.assertEqual(self.shared(), [
            (0, "2", "param:weight", "optimizer 0, 64 bytes, whole, updated, param:weight of 0")])

    def test_wrong_offsets_in_a_flat_buffer(self):
        model = net()
        for parameter, view in flat(model.parameters(), less=2):
            parameter.data = view
        self.train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertEqual([one[:3] for one in self.shared()], [
            (0, "0", "param:bias"), (0, "2", "param:weight"), (0, "2", "param:bias"), (0, "4", "param:weight"),
            (0, "4", "param:bias")][:len(self.shared())])
        self.assertIn((0, "0", "param:bias", "optimizer 0, 8 bytes, part, updated, param:weight of 0"), self.shared())

    def test_parts_side_by_side_or_interleaved_share_nothing(self):
        model = net()
        for parameter, view in flat(model.parameters()):
            parameter.data = view.normal_()
        both = torch.randn(4, 4, 2)
        model[0].weight.data, model[2].weight.data = both[:, :, 0], both[:, :, 1]
        self.train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertEqual(self.shared(), [])

    def test_gaps_that_fit_into_each_other_but_for_one_column(self):
        model = net()
        both = torch.randn(4, 8)
        model[0].weight.data, model[2].weight.data = both[:, :4], both[:, 3:7]
        self.train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertEqual([one[:3] for one in self.shared()], [(0, "2", "param:weight")])

    def test_a_tied_parameter_is_one(self):
        model = net()
        model[2].weight = model[0].weight
        self.train(model, torch.optim.Adam(model.parameters()))
        self.assertEqual(self.shared(), [])


class Gradients(Owners):
    def test_one_tensor_that_stays(self):
        model = net()
        model[0].weight.grad = torch.zeros(4, 4)
        model[2].weight.grad = model[0].weight.grad
        self.train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertEqual(self.shared(), [
            (step, "2", "grad:weight", "optimizer 0, 64 bytes, whole, %s, grad:weight of 0" % word)
            for step, word in enumerate(("same", "kept"))])

    def test_one_tensor_that_is_handed_over_late(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def hand(step):
            if step >= 3:
                model[2].bias.grad = model[0].bias.grad

        self.train(model, optimizer, 5, False, hand)
        self.assertEqual([(one[0], one[2], one[3].split(", ")[3]) for one in self.shared()], [(3, "grad:bias", "same")])

    def test_what_autograd_gives_two_parameters(self):
        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3, 4))

            def forward(self, x):
                return (x + self.a.unsqueeze(0) + self.b.unsqueeze(0)).tanh()

        model = Sum()
        self.train(model, torch.optim.SGD(model.parameters(), lr=0.1), keep=False)
        self.assertEqual([one[3].split(", ")[3] for one in self.shared()], ["new"])

    def test_an_op_that_gives_one_workspace_to_two_parameters(self):
        workspace = torch.zeros(4, 4).numpy()

        class Linear(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return x @ weight.T

            @staticmethod
            def backward(ctx, gradient):
                x, weight = ctx.saved_tensors
                workspace[:] = (gradient.T @ x).numpy()
                return gradient @ weight, torch.from_numpy(workspace)

        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(4, 4))

            def forward(self, x):
                return Linear.apply(x, self.weight)

        model = nn.Sequential(Own(), nn.Tanh(), Own())
        self.train(model, torch.optim.SGD(model.parameters(), lr=0.1), keep=False)
        self.assertEqual({one[3].split(", ")[3] for one in self.shared()}, {"foreign"})

    def test_flat_buffers_and_expanded_numbers_share_nothing(self):
        model = net()
        for parameter, view in flat(model.parameters()):
            parameter.grad = view
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.train(model, optimizer)

        def expand(step):
            for parameter in model.parameters():
                parameter.grad = NUMBER.expand_as(parameter)

        self.train(model, optimizer, 2, False, expand)
        self.assertEqual(self.shared(), [])

    def test_a_gradient_that_an_optimizer_in_backward_frees_for_the_next(self):
        model = net()
        optimizers = {one: torch.optim.SGD([one], lr=0.1) for one in model.parameters()}
        buffer = torch.zeros(16)

        def step(parameter):
            view = buffer[:parameter.numel()].view_as(parameter)
            parameter.grad = view.copy_(parameter.grad)
            optimizers[parameter].step()
            parameter.grad = None

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        for _ in range(3):
            model(torch.randn(3, 4)).mean().backward()
        self.assertEqual(self.shared(), [])


NUMBER = torch.tensor(0.01)


class LeftGradients(Owners):
    """Gradients that an optimizer has used, when the next backward pass begins."""

    def left(self):
        return [(message.scope, message.slot) for message in self.fake.of("tensor") if message.slot.startswith("grad_before:")]

    def test_those_that_are_not_cleared(self):
        model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 1, bias=False))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):  # behind steps 1 and 2 of the optimizer
            model[0].zero_grad()
            model(torch.randn(3, 4)).mean().backward()
            optimizer.step()
        self.assertEqual(self.left(), [("1", "grad_before:weight")] * 2)

    def test_those_that_are_cleared_or_hidden(self):
        model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 1, bias=False))
        self.train(model, torch.optim.SGD(model.parameters(), lr=0.1), keep=False)
        self.assertEqual(self.left(), [])
        views = [view for _, view in flat(model.parameters())]

        def handed(step):  # memory of a bucket, which each pass fills anew
            for parameter, view in zip(model.parameters(), views):
                parameter.grad = view.copy_(parameter.grad)

        self.train(model, torch.optim.SGD(model.parameters(), lr=0.1), keep=False, handed=handed)
        self.assertEqual(self.left(), [])


class Own(torch.optim.Optimizer):
    """An optimizer whose states share a table, a count and a workspace, and have an average each."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        self.table, self.count, self.work = torch.linspace(-1, 1, 16), torch.zeros(()), torch.zeros(64)

    @torch.no_grad()
    def step(self):
        self.count += 1
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state.update(table=self.table, step=self.count)
            average = state.setdefault("average", torch.zeros_like(parameter))
            work = self.work[:parameter.numel()].view_as(parameter).copy_(parameter.grad)
            parameter.sub_(average.mul_(0.9).add_(work), alpha=0.1)


class States(Owners):
    def words(self):
        return [(step, scope, slot, rest.split(", ")[2:]) for step, scope, slot, rest in self.shared()]

    def test_an_average_of_two_is_told_when_a_step_has_written_it_twice(self):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        self.train(model, optimizer, 1)
        optimizer.state[model[2].weight]["exp_avg"] = optimizer.state[model[0].weight]["exp_avg"]
        self.train(model, optimizer, 3)
        self.assertEqual(self.words(), [
            (2, "2", "state:weight.exp_avg", ["whole", "written", "state:weight.exp_avg of 0"])])

    def test_a_state_that_is_the_parameter(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for one in model.parameters():
            optimizer.state[one].update(slow=one.detach(), start=one.detach().clone())
        self.train(model, optimizer, steps=2)
        self.assertEqual({(*one[1:3], one[3].split(", ", 3)[3]) for one in self.shared()}, {
            (scope, "state:%s.slow" % name, "held, param:%s of %s" % (name, scope)) for scope in "024" for name in ("weight", "bias")
            if (scope, name) != ("4", "bias")})

    def test_a_state_that_is_the_gradient(self):
        class Momentum(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self, closure=None):
                for one in self.param_groups[0]["params"]:
                    buffer = self.state[one].setdefault("momentum_buffer", one.grad)
                    if buffer is not one.grad:
                        buffer.mul_(0.9).add_(one.grad)
                    one.sub_(buffer, alpha=0.1)

        for clears in False, True:  # to zeros, or to a new gradient the next time, which shares nothing
            self.fake.messages.clear()
            model = net()
            optimizer = Momentum(model.parameters(), {})
            for _ in range(3):
                optimizer.zero_grad(set_to_none=clears)
                model(torch.randn(3, 4)).sum().backward()
                optimizer.step()
            self.assertEqual({one[3].split(", ", 3)[3] for one in self.shared()}, set() if clears else {
                "held, grad:%s of %s" % (name, scope) for scope in "024" for name in ("weight", "bias") if (scope, name) != ("4", "bias")})

    def test_wrong_offsets(self):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), foreach=True)
        self.train(model, optimizer, 1)
        for parameter, view in flat(model.parameters(), less=2):
            optimizer.state[parameter]["exp_avg_sq"] = view
        self.train(model, optimizer, 3)
        self.assertIn((2, "0", "state:bias.exp_avg_sq", ["part", "written", "state:weight.exp_avg_sq of 0"]), self.words())

    def test_flat_states_tables_counts_and_workspaces_are_nobodys_fault(self):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        self.train(model, optimizer, 1)
        for parameter, view in flat(model.parameters()):
            optimizer.state[parameter]["exp_avg"] = view
        self.train(model, optimizer, 3)
        self.assertEqual(self.words(), [])
        self.train(model, Own(model.parameters()))
        self.assertEqual({word[1] for *_, word in self.words()}, {"read"})

    def test_two_optimizers_that_loaded_one_state_dict(self):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        self.train(model, optimizer, 1)
        other = copy.deepcopy(model)
        second = torch.optim.Adam(other.parameters())
        second.load_state_dict(optimizer.state_dict())
        for _ in range(3):
            self.train(model, optimizer, 1)
            self.train(other, second, 1)
        self.assertEqual({word[1] for *_, word in self.words()}, {"in turn"})
        self.assertEqual(len(self.words()), 2 * 5)  # one bias is a single number

    def test_a_state_that_went_on_to_the_next_optimizer(self):
        model = net()
        first = torch.optim.Adam(model.parameters())
        self.train(model, first, 2)
        other = copy.deepcopy(model)
        second = torch.optim.Adam(other.parameters())
        second.load_state_dict(first.state_dict())
        self.train(other, second, 3)
        self.assertEqual(self.words(), [])


class Keeping(torch.autograd.Function):
    """Writes into a buffer that it keeps, without torch's knowledge."""
    buffer = torch.zeros(64)

    @staticmethod
    def forward(ctx, x):
        view = Keeping.buffer[:x.numel()].view_as(x)
        view.numpy()[...] = x.detach().numpy() * 2
        return view

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Twice(nn.Module):
    def __init__(self, join):
        super().__init__()
        self.a, self.b, self.join = nn.Linear(4, 4), nn.Linear(4, 4), join

    def forward(self, x):
        return self.join(self.a(x), self.b(x))


class ReusedOutputs(ObservedTest):
    def told(self, join):
        model = Twice(join)
        model(torch.randn(3, 4)).sum().backward()
        return [(f.scope, f.name, f.value) for f in self.fake.of("event_fact") if f.name.startswith("reused.")]

    def test_the_first_output_is_read_behind_the_second_call(self):
        self.assertEqual(self.told(lambda a, b: Keeping.apply(a) + Keeping.apply(b)),
                         [("", "reused.Keeping", "output:0, 0, 1, 0, AddBackward0")])

    def test_so_is_a_view_of_it(self):
        def join(a, b):
            first = Keeping.apply(a).view(4, 3)
            return Keeping.apply(b).sum() + first.tanh().sum()

        self.assertEqual(self.told(join), [("", "reused.Keeping", "output:0, 0, 1, 0, TanhBackward0")])

    def test_memory_of_others_that_two_storages_borrow(self):
        array = Keeping.buffer.numpy()

        class Borrowing(Keeping):
            @staticmethod
            def forward(ctx, x):
                array[:x.numel()] = x.detach().numpy().ravel() * 2
                return torch.from_numpy(array[:x.numel()]).view_as(x)

        self.assertEqual(self.told(lambda a, b: Borrowing.apply(a) + Borrowing.apply(b)),
                         [("", "reused.Borrowing", "output:0, 0, 1, 0, AddBackward0")])

    def test_outputs_that_are_dead_or_copied(self):
        self.assertEqual(self.told(lambda a, b: Keeping.apply(a).exp() + Keeping.apply(b)), [])
        self.assertEqual(self.told(lambda a, b: Keeping.apply(a).clone() * Keeping.apply(b)), [])
        self.assertEqual(self.told(lambda a, b: (Keeping.apply(a), Keeping.apply(b))[1]), [])

    def test_parts_of_the_buffer_and_memory_of_the_input(self):
        class Part(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, at):
                view = Keeping.buffer[at:at + x.numel()].view_as(x)
                view.numpy()[...] = x.detach().numpy()
                return view

            @staticmethod
            def backward(ctx, gradient):
                return gradient, None

        class Same(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, gradient):
                return -gradient

        self.assertEqual(self.told(lambda a, b: Part.apply(a, 0) + Part.apply(b, 12)), [])
        self.assertEqual(self.told(lambda a, b: Same.apply(a) + Same.apply(a)), [])

    def test_a_gradient_that_waits_when_its_buffer_is_returned_again(self):
        buffer = torch.empty(3, 4)

        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, own):
                ctx.own = own
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                given = gradient * 2 if ctx.own else torch.mul(gradient, 2, out=buffer)
                return (given.view_as(given) if Scaled.views else given), None

        class Halves(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(False)  # of an output that nobody uses it gets None
                return x / 2, x / 2

            @staticmethod
            def backward(ctx, gradient, unused):
                return torch.div(gradient, 2, out=torch.empty_like(gradient))

        class Passes(Scaled):
            @staticmethod
            def backward(ctx, gradient):
                return gradient, None

        for views in False, True:
            Scaled.views = views
            told = self.told(lambda a, b: Scaled.apply(a, False).tanh() + Scaled.apply(a, False))
            self.assertEqual([(name, *value.split(", ")[::4]) for _, name, value in told],
                             [("reused.ScaledBackward", "grad_input:0", "AddmmBackward0")])
            self.fake.messages.clear()
        for join in (lambda a, b: Scaled.apply(a, True).tanh() + Scaled.apply(a, True),
                     lambda a, b: Halves.apply(a)[0] + Halves.apply(b)[0],
                     lambda a, b: Scaled.apply(Scaled.apply(a, False), False), lambda a, b: Passes.apply(Passes.apply(a, 0), 0) + b):
            self.assertEqual(self.told(join), [])

    def test_a_gradient_that_waits_in_an_array(self):
        array = torch.empty(3, 4).numpy()

        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                array[...] = gradient.numpy() * 2
                return torch.from_numpy(array)

        told = self.told(lambda a, b: Scaled.apply(a).tanh() + Scaled.apply(a))
        self.assertEqual([(name, *value.split(", ")[::4]) for _, name, value in told],
                         [("reused.ScaledBackward", "grad_input:0", "AddmmBackward0")])
        self.fake.messages.clear()
        for join in (lambda a, b: Scaled.apply(a).tanh() + Scaled.apply(b), lambda a, b: Scaled.apply(Scaled.apply(a)) + b,
                     lambda a, b: Scaled.apply(a.exp()) + Scaled.apply(a.sin())):
            self.assertEqual(self.told(join), [])


class CommonGradients(ObservedTest):
    def told(self, gives, saves=lambda *inputs: inputs, steps=2):
        """@return the facts of an op with three inputs, the last of which has half as many elements. `gives`: makes the
        gradients."""
        class Op(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, b, c):
                ctx.save_for_backward(*saves(a, b, c))
                return (a * b).view(-1)[:6] * c

            @staticmethod
            def backward(ctx, gradient):
                return gives(gradient)

        layers = [nn.Linear(4, 4) for _ in range(3)]
        for _ in range(steps):
            x = torch.randn(3, 4)
            a, b, c = (layer(x).tanh() for layer in layers)
            Op.apply(a, b, c.reshape(-1)[:6]).sum().backward()
        return [fact.value for fact in self.fake.of("event_fact") if fact.name == "common.OpBackward"]

    def test_one_scratch_buffer_for_all(self):
        buffer = torch.empty(12)

        def gives(gradient):
            return tuple(buffer[:count].view(shape).copy_(torch.randn(shape))
                         for count, shape in ((12, (3, 4)), (12, (3, 4)), (6, (6,))))

        self.assertEqual(self.told(gives), [
            "grad_input:0, grad_input:1, 1, whole, kept, needed", "grad_input:0, grad_input:2, 1, inside, kept, needed"])
        self.fake.messages.clear()
        self.assertEqual({one.split(", ")[5] for one in self.told(gives, lambda a, b, c: (a * b,))}, {"unknown"})

    def test_arrays_over_one_memory(self):
        def gives(gradient):
            array = torch.randn(12).numpy()
            return torch.from_numpy(array).view(3, 4), torch.from_numpy(array).view(3, 4), torch.randn(6)

        self.assertEqual(self.told(gives, steps=1), ["grad_input:0, grad_input:1, 0, whole, foreign, needed"])

    def test_wrong_offsets(self):
        def gives(gradient):
            work = torch.randn(30)
            return work[:12].view(3, 4), work[11:23].view(3, 4), work[24:]

        self.assertEqual(self.told(gives, steps=1), ["grad_input:0, grad_input:1, 0, across, new, needed"])

    def test_gradients_that_are_one_by_right(self):
        work = torch.empty(30)

        def one(gradient):
            return (torch.cat([gradient, gradient]).view(3, 4),) * 2 + (gradient,)

        def passed_on(gradient):
            return gradient.expand(2, 6).reshape(3, 4), None, gradient

        def windows(gradient):
            scaled = torch.cat([gradient] * 2) * 2
            return scaled.view(3, 4), None, scaled[3:9]

        def side_by_side(gradient):
            parts = work[:12].view(3, 4), work[12:24].view(3, 4), work[24:]
            return tuple(part.copy_(torch.randn(part.shape)) for part in parts)

        for gives in one, passed_on, windows, side_by_side:
            self.assertEqual(self.told(gives), [], gives.__name__)

    def test_windows_of_what_has_the_shape_of_the_ops_own_gradient(self):
        class Ola(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                result = torch.zeros(2, 12, dtype=Ola.dtype)
                result[:, :8] += a
                result[:, 4:] += b
                return result

            @staticmethod
            def backward(ctx, gradient):
                windows = nn.functional.pad(gradient.float() * 2, (0, Ola.padding))
                return windows[:, :8], windows[:, 4:12]

        def told(dtype, join, padding=0):
            self.fake.messages.clear()
            Ola.dtype, Ola.padding = dtype, padding
            a, b = nn.Linear(4, 8), nn.Linear(4, 8)
            join(Ola.apply(a(torch.randn(2, 4)), b(torch.randn(2, 4))), a.bias).backward()
            return [fact.value.split(", ")[3:5] for fact in self.fake.of("event_fact") if fact.name == "common.OlaBackward"]

        joins = {"whole": lambda y, other: y.tanh().mean(), "expanded": lambda y, other: y.sum(),
                 "slice": lambda y, other: torch.cat([y, other.expand(2, 8)], 1).tanh().sum()}
        for dtype in torch.float32, torch.bfloat16, torch.float64:
            for name, join in joins.items():
                self.assertEqual(told(dtype, join), [], (dtype, name))
        self.assertEqual(told(torch.float32, joins["whole"], padding=3), [["across", "new"]])  # which proves nothing

    def test_gradients_of_weights_that_have_their_own(self):
        class Linear(torch.autograd.Function):
            dummy, says = torch.randn(4, 4), False

            @staticmethod
            def forward(ctx, x, first, second):
                ctx.save_for_backward(x, first, second)
                return x @ first.t() @ second.t()

            @staticmethod
            def backward(ctx, gradient):
                x, first, second = ctx.saved_tensors
                for one in first, second:
                    one.grad_added_to_main_grad = Linear.says
                return gradient @ second @ first, Linear.dummy.detach(), Linear.dummy.detach()

        first, second = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))
        model = nn.Linear(4, 4)
        for Linear.says, told in (False, {"whole"}), (True, set()):
            self.fake.messages.clear()
            for _ in range(3):
                Linear.apply(model(torch.randn(3, 4)), first, second).sum().backward()
            facts = [fact.value for fact in self.fake.of("event_fact") if fact.name.startswith("common.")]
            self.assertEqual({fact.split(", ")[3] for fact in facts}, told)
            slots = {one.slot for one in self.fake.of("tensor") if one.op == "LinearBackward" and one.slot.startswith("grad_input")}
            self.assertEqual(slots, {"grad_input:0"} | ({"grad_input:1", "grad_input:2"} if told else set()))

    def test_many_gradients_are_not_compared_with_each_other(self):
        read = values.TensorReader(torch)
        flat, columns = torch.empty(400 * 64), torch.empty(64, 64 * 16)
        for parts in [torch.empty(64) for _ in range(400)], flat.split(64), columns.chunk(64, 1):
            with mock.patch.object(values, "share", wraps=values.share) as share, mock.patch.object(
                    values, "_addresses", side_effect=AssertionError):
                self.assertEqual(values.pairs([read.again(part) for part in parts]), [])
            self.assertLess(share.call_count, len(parts))

    def test_whether_an_element_is_common_is_told_exactly(self):
        read, random = values.TensorReader(torch), random_of(3)
        memory, seen = torch.empty(200), set()
        for _ in range(3000):
            both = []
            for _ in range(2):
                shape = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
                strides = [random.choice((0, 1, 2, 3, 4, 8, 12)) for _ in shape]
                both.append(read.again(memory.as_strided(shape, strides, random.randint(0, 40))))
            addresses = [values._addresses(one) for one in both]
            if all(len(each) == values.element_bytes(one) for each, one in zip(addresses, both)):  # none lies in itself
                shared = not addresses[0].isdisjoint(addresses[1])
                seen.add(shared)
                self.assertEqual(values.share(*both), shared, both)
        self.assertEqual(seen, {False, True})

    def test_one_tensor_that_is_taken_twice(self):
        buffer = torch.empty(3, 4)

        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx, gradient):
                torch.mul(gradient, ctx.saved_tensors[0], out=buffer)
                return buffer, buffer

        for _ in range(3):
            a = nn.Linear(4, 4)(torch.randn(3, 4))
            Product.apply(a, a).sum().backward()
        self.assertEqual([fact for fact in self.fake.of("event_fact") if fact.name.startswith("common.")], [])


class Recomputed(ObservedTest):
    def buffers(self, call, **options):
        """@return the phases in which buffers of a norm were recorded, in two steps."""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

            def forward(self, x):
                return checkpoint(lambda x: call(self, x), x, **options).sum()

        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.randn(3, 4, requires_grad=True)).backward()
            optimizer.step()
        return [tensor.phase for tensor in self.fake.tensors(slot="buffer:running_mean")]

    def test_a_recomputation_is_a_phase_of_its_own(self):
        for reentrant in True, False:
            self.fake.messages.clear()
            self.assertEqual(self.buffers(lambda model, x: model.norm(model.linear(x)).tanh(), use_reentrant=reentrant),
                             ["forward", "recompute"] * 2)

    def test_also_where_it_ends_in_the_module_that_writes(self):
        self.assertEqual(self.buffers(lambda model, x: model.norm(model.linear(x)), use_reentrant=False),
                         ["forward", "recompute"] * 2)


if __name__ == "__main__":
    unittest.main()
