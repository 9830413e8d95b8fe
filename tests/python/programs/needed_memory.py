"""Ops that write memory which somebody still needs (wrong_*), ops that only look alike (right_*), and such as
cannot be told from faulty ones (alike_*).

The model of a case has a class of the case's name, by which findings tell it. `python needed_memory.py wrong|right|alike|CASE DEVICE`"""
import sys

import torch
from torch import nn

CASES = {}
running = []  # the case


def case(function):
    CASES[function.__name__] = function
    return function


def named(model):
    model.__class__ = type(running[0], (type(model),), {})
    return model


def train(forward, parameters, steps=3, between=lambda: None, loss_of=lambda y: y.square().mean()):
    optimizer = torch.optim.SGD(list(parameters), lr=0.05)
    for _ in range(steps):
        loss = loss_of(forward(torch.randn(6, 8)))
        between()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Block(nn.Module):
    """`op` takes what the first layer gives; `around` joins both."""

    def __init__(self, op, around=lambda h, y: y, before=lambda h: h):
        nn.Module.__init__(self)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.op, self.around, self.before = op, around, before
        named(self)

    def forward(self, x):
        h = self.before(self.first(x))
        return self.last(self.around(h, self.op(h)))


def raw(tensor):
    """Its memory, to which PyTorch counts no write, as none of a kernel that takes a pointer."""
    return tensor.data


class Square(torch.autograd.Function):
    """x * x; the backward writes its result over what it has saved, and PyTorch does not count it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        raw(x)[...] = 2 * raw(x) * raw(grad)
        return x.detach()


class Tenth(torch.autograd.Function):
    """x / 10; the backward works on the gradient that it is given. `way`: "counted" or "raw"."""

    @staticmethod
    def forward(ctx, x, way):
        ctx.way = way
        return x / 10

    @staticmethod
    def backward(ctx, grad):
        if ctx.way == "counted":
            grad /= 10
        else:
            raw(grad)[...] /= 10
        return grad, None


class Gate(torch.autograd.Function):
    """x * sigmoid(x); keeps the sigmoid in a buffer that `buffer_of()` gives. `keep`: by "save", or as an "attribute"."""

    @staticmethod
    def forward(ctx, x, keep, buffer_of):
        buffer = buffer_of()
        raw(buffer)[...] = raw(x.sigmoid())
        if keep == "save":
            ctx.save_for_backward(x, buffer)
        else:
            ctx.save_for_backward(x)
            ctx.gate = buffer
        return x * buffer

    @staticmethod
    def backward(ctx, grad):
        x, gate = ctx.saved_tensors if len(ctx.saved_tensors) == 2 else (*ctx.saved_tensors, ctx.gate)
        return grad * gate * (1 + x * (1 - gate)), None, None


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).sum(0)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight


@case
def wrong_saved_of_tanh():
    model = Block(Square.apply, before=torch.tanh)
    train(model, model.parameters())


@case
def wrong_saved_of_product():
    def product_first(h):
        model.product = h * h
        return h

    model = Block(Square.apply, lambda h, y: y + model.product, product_first)
    train(model, model.parameters())


@case
def wrong_saved_of_exp():
    model = Block(lambda h: Square.apply(Exp.apply(h)))
    train(model, model.parameters())


@case
def wrong_gradient_counted():
    model = Block(lambda h: Tenth.apply(h.tanh(), "counted"), lambda h, y: h + y)
    train(model, model.parameters())


@case
def wrong_gradient_raw():
    model = Block(lambda h: Tenth.apply(h.tanh(), "raw"), lambda h, y: y + h)
    train(model, model.parameters())


@case
def wrong_gradient_alone():
    """Nobody else reads that gradient, today."""
    model = Block(lambda h: Tenth.apply(h.tanh(), "counted"))
    train(model, model.parameters())


@case
def wrong_buffer_saved():
    buffer = torch.empty(6, 8)
    model = Block(lambda h: Gate.apply(Gate.apply(h, "save", lambda: buffer), "save", lambda: buffer))
    train(model, model.parameters())


@case
def wrong_buffer_of_ctx():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.buffer = torch.empty(6, 8)
            self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return Gate.apply(self.two(Gate.apply(self.one(x), "attribute", lambda: self.buffer)), "attribute", lambda: self.buffer)

    model = named(nn.Sequential(Twice(), Twice()))
    model[1].buffer = model[0].buffer
    train(model, model.parameters())


@case
def wrong_statistics_of_ctx():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            scale.copy_(x.abs().mean(0))
            ctx.scale = scale
            return x * scale

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.scale, None

    scale = torch.empty(8)
    model = Block(lambda h: Scaled.apply(Scaled.apply(h, scale).tanh(), scale))
    train(model, model.parameters())


@case
def wrong_weight_written():
    """The backward leaves the weight scaled."""

    class Linear(Product):
        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            raw(weight).mul_(0.9)
            return grad @ weight.t(), x.t() @ grad

    weight = nn.Parameter(torch.randn(8, 8))
    model = Block(lambda h: Linear.apply(h, weight))
    train(model, [*model.parameters(), weight])


@case
def wrong_input_written():
    class Centre(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x -= x.mean(1, keepdim=True)
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * (grad - grad.mean(1, keepdim=True))

    model = Block(Centre.apply, lambda h, y: h + y)
    train(model, model.parameters())


@case
def wrong_library_gradient():
    @torch.library.custom_op("inplace_tests::square", mutates_args=())
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    def backward(ctx, grad):
        x, = ctx.saved_tensors
        raw(x)[...] = 2 * raw(x) * raw(grad)
        return x.detach()

    square.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    model = Block(square, before=torch.sigmoid)
    train(model, model.parameters())


@case
def wrong_between_modules():
    def clamp(h):
        raw(h).clamp_(min=0)
        return h

    class Clamped(nn.Sequential):
        def forward(self, x):
            return self[2](clamp(self[1](self[0](x))))

    model = named(Clamped(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
    train(model, model.parameters())


@case
def wrong_weight_between():
    scale = nn.Parameter(torch.ones(8))
    model = Block(lambda h: Weighted.apply(h, scale))
    train(model, [*model.parameters(), scale], between=lambda: scale.data.mul_(1.5))


@case
def wrong_batch_refilled():
    batch = torch.randn(6, 8)
    weight = nn.Parameter(torch.ones(8))
    model = Block(lambda h: Weighted.apply(h, weight), before=lambda h: Weighted.apply(batch, weight))

    def refill():
        raw(batch)[...] = raw(torch.randn(6, 8))

    train(model, [weight, *model.parameters()], between=refill)


@case
def wrong_array_refilled():
    array = torch.randn(6, 8, device="cpu").numpy()
    batch = torch.from_numpy(array)
    model = Block(torch.tanh, before=lambda h: h).cpu()

    def refill():
        array[...] += 1

    train(lambda x: model(batch), model.parameters(), between=refill)


def clipped(h):
    """NumPy has the memory, and writes it."""
    array = h.detach().numpy()
    array.clip(-0.1, 0.1, out=array)
    return h


class OnCpu(nn.Module):
    """`behind` gets what the first layer gives, when `act` has taken it."""

    def __init__(self, act, behind=lambda h: None):
        nn.Module.__init__(self)
        self.first, self.act, self.last, self.behind = nn.Linear(8, 8), act, nn.Linear(8, 4), behind
        named(self.cpu())

    def forward(self, x):
        h = self.first(x.cpu())
        y = self.act(h)
        self.behind(h)
        return self.last(y)


@case
def wrong_input_of_linear():
    model = OnCpu(nn.Linear(8, 8), behind=clipped)
    train(model, model.parameters())


@case
def wrong_result_of_tanh():
    model = OnCpu(nn.Tanh())
    model.act.register_forward_hook(lambda module, args, out: setattr(module, "out", out.detach()))
    train(model, model.parameters(), between=lambda: clipped(model.act.out))


@case
def wrong_in_a_later_step():
    """From the ninth step on to one before the next power of two."""
    calls = []
    model = OnCpu(nn.Linear(8, 8), behind=lambda h: calls.append(1) or len(calls) > 8 and clipped(h))
    train(model, model.parameters(), steps=15)


class WithBuffer(nn.Module):
    """`op` takes what a layer gives, and a buffer; `behind` gets the result."""

    def __init__(self, op, behind=lambda buffer, y: None, name="state", calls=3):
        nn.Module.__init__(self)
        self.op, self.behind, self.calls, self.name = op, behind, calls, name
        self.inner, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.register_buffer(name, torch.linspace(0.5, 1.5, 48).view(6, 8))
        named(self)

    def forward(self, x):
        state = getattr(self, self.name)
        raw(state).copy_(torch.linspace(0.5, 1.5, 48).view(6, 8))
        for _ in range(self.calls):
            x = self.op(self.inner(x), state)
            self.behind(state, x)
        return self.last(x)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


def written_in_backward(write):
    class Written(Scaled):
        @staticmethod
        def backward(ctx, grad):
            scale, = ctx.saved_tensors
            given = grad * scale
            write(scale, grad)
            return given, None

    return Written.apply


@case
def wrong_state_of_a_cell():
    """The next call of the module writes what this one has saved."""
    model = WithBuffer(Scaled.apply, lambda state, y: raw(state).copy_(y.detach().tanh()))
    train(model, model.parameters())


@case
def wrong_buffer_multiplied():
    model = WithBuffer(written_in_backward(lambda scale, grad: scale.mul_(0.5)), calls=1)
    train(model, model.parameters())


@case
def wrong_buffer_written():
    model = WithBuffer(written_in_backward(lambda scale, grad: raw(scale).add_(grad)), calls=1)
    train(model, model.parameters())


class Inside(nn.Module):
    """Calls an op as a module."""

    def __init__(self, op):
        nn.Module.__init__(self)
        self.op = op

    def forward(self, x):
        return self.op(x)


def limited(module, args, out):
    """A forward hook."""
    raw(out).clamp_(-0.1, 0.1)


@case
def wrong_hook_of_an_op():
    model = named(nn.Sequential(nn.Linear(8, 8), Inside(Exp.apply), nn.Linear(8, 4)))
    model[1].register_forward_hook(limited)
    train(model, model.parameters())


class ActsBetween(nn.Module):
    """`act` takes what the first layer gives, and `write` gets it behind that; only arithmetic reads it then."""

    def __init__(self, act, write):
        nn.Module.__init__(self)
        self.first, self.act, self.last, self.write = nn.Linear(8, 8), act, nn.Linear(8, 4), write
        named(self)

    def forward(self, x):
        h = self.first(x)
        y = self.act(h)
        self.write(h)
        return self.last(y + h)


@case
def wrong_data_behind_a_layer():
    model = ActsBetween(nn.Linear(8, 8), lambda h: raw(h).mul_(0.5))
    train(model, model.parameters())


@case
def wrong_data_behind_a_product():
    weight = nn.Parameter(torch.randn(8, 8))
    model = ActsBetween(Inside(lambda h: h.tanh() @ weight), lambda h: raw(model.act.kept).mul_(0.5))
    model.act.op = lambda h: setattr(model.act, "kept", h.tanh()) or model.act.kept @ weight
    train(model, [*model.parameters(), weight])


@case
def right_data_behind_a_layer():
    """What needs no values; what is written in front of it."""
    for act in nn.ReLU(), nn.Linear(8, 8).requires_grad_(False), nn.Identity(), Inside(lambda h: h.clone() * 2):
        model = ActsBetween(act, lambda h: raw(h).mul_(0.5))
        train(model, [one for one in model.parameters() if one.requires_grad])
    model = ActsBetween(Inside(lambda h: nn.functional.silu(raw(h).mul_(0.5) + h)), lambda h: None)
    train(model, model.parameters())


class Branched(nn.Module):
    """`hook` gets the gradient of the act's output, which is that of the branch beside it, too."""

    def __init__(self, hook, shares=True):
        nn.Module.__init__(self)
        self.first, self.act, self.last = nn.Linear(8, 8), Inside(Exp.apply), nn.Linear(8, 4)
        self.hook, self.shares = hook, shares
        named(self)

    def forward(self, x):
        h = self.first(x).tanh()
        y = self.act(h)
        y.register_hook(self.hook)
        return self.last(y + h if self.shares else y)


def halved(grad):
    raw(grad).mul_(0.5)


@case
def wrong_hook_of_a_gradient():
    model = Branched(halved)
    train(model, model.parameters())


@case
def right_hook_of_a_gradient():
    for model in Branched(halved, shares=False), Branched(lambda grad: grad * 0.5):
        train(model, model.parameters())


@case
def right_hooks():
    """They give other tensors, write what PyTorch counts, or give the tensor other memory."""
    def rounded(module, args, out):
        out.data = (out.data * 8).round() / 8

    for hook in (lambda module, args, out: out.clamp(-0.1, 0.1)), (lambda module, args, out: out.mul_(0.5)), rounded:
        model = named(nn.Sequential(nn.Sequential(nn.Linear(8, 8), Inside(torch.sin)), nn.Linear(8, 4)))
        for module in model[0], model[0][0]:
            module.register_forward_hook(hook)
        train(model, model.parameters())
        assert all(len(module._forward_hooks) <= 1 for module in model.modules())


def mask_of(op):
    """As a module: two calls before the first's backward."""
    return Block(lambda h: op(0.3 - op(h)))


class Kept:
    """Attributes that calls of ops have in common."""


@case
def wrong_state_of_an_object():
    class Mask(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            Kept.mask = (x > 0).float()
            return x * Kept.mask

        @staticmethod
        def backward(ctx, grad):
            return grad * Kept.mask

    model = mask_of(Mask.apply)
    train(model, model.parameters())


@case
def wrong_state_on_a_module():
    class OwnedMask(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, owner):
            ctx.owner, owner.mask = owner, (x > 0).float()
            return x * owner.mask

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.owner.mask, None

    model = mask_of(lambda h: OwnedMask.apply(h, model.first))
    train(model, model.parameters())


@case
def right_state_of_objects():
    """A stack, a table that grows, what the backward writes itself, what it does not read, and state of one call."""
    stack, tables = [], {}

    class Stacked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            stack.append(x > 0)
            return x * stack[-1]

        @staticmethod
        def backward(ctx, grad):
            return grad * stack.pop()

    class Tabled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.size = tables["size"] = tables.get("size", 1) + 1
            tables["cos"] = torch.linspace(0, 1, 8 * ctx.size).cos()
            return x * tables["cos"][:8]

        @staticmethod
        def backward(ctx, grad):
            return grad * tables["cos"][:8]

    class Rewritten(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            Kept.scratch = x.tanh()
            return Kept.scratch.clone()

        @staticmethod
        def backward(ctx, grad):
            Kept.scratch = ctx.saved_tensors[0].tanh()
            return grad * (1 - Kept.scratch.square())

    class Logged(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, owner):
            ctx.owner, owner.last = owner, x * 2
            return x * owner.scale

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.owner.scale, None

    owner = Kept()
    owner.scale = 2
    for op in Stacked.apply, Tabled.apply, Rewritten.apply, lambda h: Logged.apply(h, owner):
        model = mask_of(op)
        train(model, model.parameters())


@case
def right_averages_and_scratch():
    """An average that the backward reads, and a scratch buffer that it fills."""
    scratch = torch.empty(6, 8)

    class Averaged(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            Kept.mean = 0.9 * getattr(Kept, "mean", 1) + 0.1 * x.abs().mean(0)
            return x / Kept.mean

        @staticmethod
        def backward(ctx, grad):
            return grad / Kept.mean

    class Scratched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tanh(x, out=scratch).clone()

        @staticmethod
        def backward(ctx, grad):
            x, = ctx.saved_tensors
            return grad * (1 - torch.tanh(x, out=scratch).square())

    for op in Averaged.apply, Scratched.apply:
        model = mask_of(op)
        train(model, model.parameters())


@case
def right_state_of_a_cell():
    """Each call has a state of its own, or writes it before it is saved; statistics are not read by the backward."""
    def renewed(x, state):
        return Scaled.apply(x, state.clone())

    def before_it_is_saved(x, state):
        raw(state).mul_(0.9)
        return Scaled.apply(x, state)

    def written(state, y):
        raw(state).copy_(y.detach().tanh())

    for model in WithBuffer(renewed, written), WithBuffer(before_it_is_saved, calls=1):
        train(model, model.parameters())
    statistics = WithBuffer(Scaled.apply, lambda state, y: raw(state).mul_(0.9), name="running_scale")
    train(statistics, statistics.parameters())


def average(scale, grad):
    scale.mul_(0.9).add_(grad.abs(), alpha=0.1)


@case
def right_average_in_backward():
    model = WithBuffer(written_in_backward(average), calls=1)
    train(model, model.parameters())


@case
def alike_average_past_the_count():
    model = WithBuffer(written_in_backward(lambda scale, grad: average(raw(scale), grad)), calls=1)
    train(model, model.parameters())


@case
def alike_codebook():
    """Saved for a gradient that nobody wants, and an average."""
    class Nearest(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, codes):
            ctx.save_for_backward(x, codes)
            return codes[torch.cdist(x, codes).argmin(1)]

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    class Quantized(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("codes", torch.randn(6, 8))

        def forward(self, x):
            y = Nearest.apply(x, self.codes)
            raw(self.codes).mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            return y

    model = Block(Quantized())
    train(model, model.parameters())


@case
def right_own_intermediate():
    """The backward makes its results in what its forward has made."""
    class Gated(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x.sigmoid(), x.tanh()
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            given = grad * b * a * (1 - a)
            raw(b).copy_(grad * a * (1 - b * b))
            return given + b

    model = Block(Gated.apply)
    train(model, model.parameters())


class Columns(nn.Module):
    """A product with what `workspace_of()` gives, an array of NumPy in which each call puts its input."""

    def __init__(self, workspace_of):
        nn.Module.__init__(self)
        self.workspace_of = workspace_of
        self.weight, self.bias = nn.Parameter(torch.randn(8, 8, device="cpu")), nn.Parameter(torch.zeros(8, device="cpu"))

    def forward(self, x):
        array = self.workspace_of()
        array[...] = x.detach().numpy()
        return (torch.from_numpy(array) @ self.weight + self.bias).view(2, 3, 8)


class TwoColumns(nn.Module):
    def __init__(self, workspace_of):
        nn.Module.__init__(self)
        self.one, self.two, self.last = Columns(workspace_of), Columns(workspace_of), nn.Linear(8, 4, device="cpu")
        named(self)

    def forward(self, x):
        return self.last(self.one(x.cpu()) + self.two(2 * x.cpu()))


@case
def wrong_columns_of_a_product():
    workspace = torch.empty(6, 8, device="cpu").numpy()
    model = TwoColumns(lambda: workspace)
    train(model, model.parameters())


@case
def right_columns_of_a_product():
    model = TwoColumns(lambda: torch.empty(6, 8, device="cpu").numpy())
    train(model, model.parameters())


@case
def right_written_before_it_is_saved():
    model = OnCpu(nn.Linear(8, 8))
    model.act.register_forward_pre_hook(lambda module, args: clipped(*args))
    train(model, model.parameters())


@case
def right_written_and_not_needed():
    """The layer that took it is frozen, and saves nothing; pooling saves it for its shape."""
    frozen = nn.Linear(8, 8).requires_grad_(False)
    for act in frozen, nn.ReLU(), nn.AvgPool1d(1):
        model = OnCpu(act, behind=clipped)
        train(model, [one for one in model.parameters() if one.requires_grad])


@case
def right_memory_that_is_read():
    model = OnCpu(nn.Tanh(), behind=lambda h: h.detach().numpy().sum())
    train(model, model.parameters())


@case
def right_arrays_in_turn():
    arrays = [torch.randn(6, 8, device="cpu").numpy() for _ in range(2)]
    batches = [torch.from_numpy(array) for array in arrays]
    model = Block(torch.tanh).cpu()
    turn = [0]

    def refill():
        turn[0] = 1 - turn[0]
        arrays[turn[0]][...] += 1

    train(lambda x: model(batches[turn[0]]), model.parameters(), between=refill)


@case
def wrong_second_backward():
    model = Block(Square.apply)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(6, 8)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()


@case
def right_own_memory():
    """As Liger's kernels do: nobody else needs the saved input."""
    model = Block(Square.apply)
    train(model, model.parameters())


@case
def right_own_memory_of_a_view():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    train(lambda x: model[1](Square.apply(model[0](x.view(2, 3, 8)).view(6, 8))), model.parameters())


@case
def right_mark_dirty():
    class Relu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.clamp_(min=0)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * (ctx.saved_tensors[0] > 0)

    model = Block(Relu.apply)
    train(model, model.parameters())


@case
def right_running_statistics():
    class Normed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, mean):
            mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return x - mean

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    mean = torch.zeros(8)
    model = Block(lambda h: Normed.apply(Normed.apply(h, mean), mean))
    train(model, model.parameters())


@case
def right_batch_norm():
    """Keeps running statistics that its backward does not read, as InPlace-ABN does; two calls before the backward."""

    class Normed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, mean, variance):
            ctx.save_for_backward(x, mean, variance)
            return torch.nn.functional.batch_norm(x, mean, variance, training=True)

        @staticmethod
        def backward(ctx, grad):
            x, *_ = ctx.saved_tensors
            return grad / x.std(0), None, None

    class Norm(nn.BatchNorm1d):
        def forward(self, x):
            return Normed.apply(x, self.running_mean, self.running_var)

    norm = Norm(8)
    model = Block(lambda h: norm(norm(h)))
    model.norm = norm
    train(model, model.parameters())


@case
def right_pool():
    pool = torch.empty(6, 8)

    class Pooled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            raw(pool)[...] = 2 * raw(x)
            return pool.view_as(pool)

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    model = Block(lambda h: Pooled.apply(h).sin())
    train(model, model.parameters())


@case
def right_softmax_reused():
    """As Megatron's cross entropy: the backward writes the softmax that the forward made."""

    class CrossEntropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, labels):
            softmax = logits.softmax(1)
            ctx.save_for_backward(softmax, labels)
            return -softmax.gather(1, labels[:, None]).log().mean()

        @staticmethod
        def backward(ctx, grad):
            softmax, labels = ctx.saved_tensors
            rows = torch.arange(len(labels))
            raw(softmax)[rows, labels] -= 1
            return softmax.mul_(grad / len(labels)), None

    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    model = Block(torch.relu)
    train(model, model.parameters(), loss_of=lambda y: CrossEntropy.apply(y, labels))


@case
def right_checkpoint():
    from torch.utils.checkpoint import checkpoint
    model = Block(Exp.apply)
    train(lambda x: checkpoint(model, x, use_reentrant=False), model.parameters())
    model = Block(lambda h: Gate.apply(h, "save", lambda: torch.empty(6, 8)))
    train(lambda x: checkpoint(model, x.requires_grad_(), use_reentrant=True), model.parameters())


@case
def right_packed():
    class Packed(torch.autograd.graph.saved_tensors_hooks):
        def __init__(self):
            super().__init__(lambda tensor: (tensor.device, tensor.to("cpu", copy=True)), lambda packed: packed[1].to(packed[0]))

    model = Block(lambda h: Exp.apply(Square.apply(h)))

    def forward(x):
        with Packed():
            return model(x)

    train(forward, model.parameters())


@case
def right_twice_differentiated():
    model = Block(lambda h: Weighted.apply(h, model.scale))
    model.scale = nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        x = torch.randn(6, 8, requires_grad=True)
        gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        optimizer.zero_grad()
        (model(x).square().mean() + gradient.square().mean()).backward(retain_graph=True)
        optimizer.step()


@case
def right_transforms():
    from torch.func import grad, vmap

    class Cube(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x ** 3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3 * ctx.saved_tensors[0] ** 2

    model = Block(Cube.apply)
    train(model, model.parameters())
    vmap(grad(lambda x: Cube.apply(x).sum()))(torch.randn(3, 8))


@case
def right_views():
    class Halves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:, :4], x[:, 4:]

        @staticmethod
        def backward(ctx, one, two):
            return torch.cat([one, two], 1)

    model = Block(lambda h: torch.cat(Halves.apply(h), 1))
    train(model, model.parameters())


@case
def right_transposed_views():
    """As many patches as channels, so that a view has the shape of what it turns."""
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.norm = nn.Conv2d(3, 16, 4, 4), nn.LayerNorm(16)
            self.mix, self.head = nn.Conv1d(16, 16, 1), nn.Linear(16, 2)

        def forward(self, x):
            tokens = self.norm(self.patch(x).flatten(2).transpose(1, 2))
            return self.head(self.mix(tokens.transpose(1, 2)).transpose(1, 2).mean(1))

    model = Patches()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 16, 16)).pow(2).sum().backward()
        optimizer.step()


@case
def right_gradient_passed_on():
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad.neg()

    class Same(Reverse):
        @staticmethod
        def backward(ctx, grad):
            return grad

    model = Block(lambda h: Same.apply(Reverse.apply(h)), lambda h, y: h + y)
    train(model, model.parameters())


@case
def right_main_grad():
    """As Megatron's fused accumulation: the backward adds to a gradient of its own."""

    class Fused(Product):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.main_grad = weight.main_grad
            return Product.forward(ctx, x, weight)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            ctx.main_grad.add_(x.t() @ grad)
            return grad @ weight.t(), None

    weight = nn.Parameter(torch.randn(8, 8))
    weight.main_grad = torch.zeros(8, 8)
    model = Block(lambda h: Fused.apply(Fused.apply(h, weight), weight))
    train(model, model.parameters())


@case
def right_fused_update():
    """As LOMO: the backward updates the weight."""

    class Updated(Product):
        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            given = grad @ weight.t()
            with torch.no_grad():
                weight.sub_(x.t() @ grad, alpha=0.01)
            return given, None

    weight = nn.Parameter(torch.randn(8, 8))
    model = Block(lambda h: Updated.apply(h, weight))
    train(model, model.parameters())


@case
def right_ctx_with_names_of_nodes():
    class Named(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.name = "named"
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    model = Block(lambda h: Named.apply(Named.apply(h)))
    train(model, model.parameters())


@case
def right_update_in_backward():
    def update(parameter):
        parameter.data.add_(parameter.grad, alpha=-0.05)

    model = Block(lambda h: Weighted.apply(h, model.scale))
    model.scale = nn.Parameter(torch.ones(8))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(6, 8)).square().mean().backward()


@case
def right_library_writes():
    @torch.library.custom_op("inplace_tests::scale_", mutates_args=("x",))
    def scale_(x: torch.Tensor) -> None:
        raw(x)[...] *= 2

    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))

    def forward(x):
        scale_(x)
        return model(x)

    train(forward, model.parameters())


@case
def right_written_without_gradients():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(x):
        with torch.no_grad():
            h = model[1](model[0](x))
            raw(h)[...] *= 2
            model[2](h)
        return model(x)

    train(forward, model.parameters())


@case
def right_recurrent():
    model = nn.ModuleDict({"cell": nn.Linear(8, 8), "out": nn.Linear(8, 4)})

    def forward(x):
        h = x
        for _ in range(4):
            h = Exp.apply(-model["cell"](h))
        return model["out"](h)

    train(forward, model.parameters())


@case
def right_compiled():
    model = torch.compile(Block(lambda h: Exp.apply(-h) + h.tanh() * 2), backend="aot_eager")
    train(model, model.parameters())


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_default_device(sys.argv[2])
    first = nn.Linear(1, 1)  # the first model of a program has no name
    first(torch.ones(1))
    for name in CASES:
        if name.startswith(sys.argv[1]):
            running[:] = [name]
            CASES[name]()
