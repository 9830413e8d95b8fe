"""Hooks, buffers and state of objects that are written while they are still needed, or only look alike (needed_cases.py)."""
import torch
from needed_cases import Block, Exp, Inside, Weighted, case, main, named, raw, train
from torch import nn


class WithBuffer(nn.Module):
    """A module with a buffer. `op` takes the output of a layer and the buffer; `behind` is called after it."""

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


def counted(fill):
    """An op that keeps the buffer of its module on ctx, after the function `fill` has run with it."""
    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, state):
            fill(x, state)
            ctx.state = state
            return x * state

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.state, None

    return Counted


@case
def wrong_buffer_replaced():
    class Replaced(counted(None)):
        @staticmethod
        def forward(ctx, x, state):
            state.copy_(x.sigmoid())
            ctx.state = state
            return x * state

    model = WithBuffer(Replaced.apply)
    train(model, model.parameters())


@case
def right_average_on_ctx():
    class Averaged(counted(None)):
        @staticmethod
        def forward(ctx, x, state):
            state.copy_(0.9 * state + 0.1 * x.sigmoid())
            ctx.state = state
            return x * state

    for op in Averaged, counted(lambda x, state: state.mul_(0.9).add_(x.sigmoid())), counted(lambda x, state: state.lerp_(x.sigmoid(), 0.1)):
        model = WithBuffer(op.apply)
        train(model, model.parameters())


class Ranged(torch.autograd.Function):
    """Reads a buffer that the caller has filled."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x / scale

    @staticmethod
    def backward(ctx, grad):
        return grad / ctx.scale, None


class Renewing(nn.Module):
    """Fills its buffer in each call."""

    def __init__(self, op=Ranged.apply, calls=2):
        super().__init__()
        self.calls, self.inner, self.quant, self.last = calls, nn.Linear(8, 8), self.Quant(op), nn.Linear(8, 4)
        named(self)

    class Quant(nn.Module):
        def __init__(self, op):
            super().__init__()
            self.levels, self.op, self.inner = 4, op, nn.Identity()
            self.register_buffer("scale", torch.ones(8))

        def forward(self, x):
            top = x.detach().abs().amax(0)
            if self.training:
                self.scale.copy_(top / self.levels + 0.5)
            return self.op(x, self.scale)

    def forward(self, x):
        for _ in range(self.calls):
            x = self.quant(self.inner(x))
        return self.last(x)


@case
def right_averages_of_a_module():
    """The module gets what it puts into the buffer from where an average may be kept, or puts it there once."""
    class Helped(Renewing):
        class Quant(Renewing.Quant):
            def forward(self, x):
                new = self.mean_with(x)
                self.scale.copy_(new)
                return self.op(x, self.scale)

            def mean_with(self, x):
                return 0.9 * self.scale + x.detach().abs().amax(0)

    class Mixed(Renewing):
        class Quant(Renewing.Quant):
            def forward(self, x):
                new = 0.9 * self.scale + x.detach().abs().amax(0)
                self.scale.copy_(new)
                return self.op(x, self.scale)

    class Observed(Renewing):
        class Quant(Renewing.Quant):
            def forward(self, x):
                self.inner.mean = getattr(self.inner, "mean", 1) * 0.9 + x.detach().abs().amax(0)
                self.scale.copy_(self.inner.mean)
                return self.op(x, self.scale)

    class First(Renewing):
        class Quant(Renewing.Quant):
            begun = False

            def forward(self, x):
                if not self.begun:
                    self.scale.copy_(x.detach().abs().amax(0) + 0.5)
                    self.begun = True
                self.scale.mul_(1.1)
                return self.op(x, self.scale)

    for kind in Helped, Mixed, Observed, First:
        model = kind()
        train(model, model.parameters())


@case
def right_buffers_of_a_module():
    """One call in a step, a copy on ctx, and a backward that only notes it."""
    seen = []

    class Copied(Ranged):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale.clone()
            return x / scale

    class Noted(Ranged):
        @staticmethod
        def backward(ctx, grad):
            largest = ctx.scale.max()
            seen.append(largest.item())
            return grad, None

    for model in Renewing(calls=1), Renewing(Copied.apply), Renewing(Noted.apply):
        train(model, model.parameters())


@case
def wrong_buffer_multiplied():
    model = WithBuffer(written_in_backward(lambda scale, grad: scale.mul_(0.5)), calls=1)
    train(model, model.parameters())


@case
def wrong_buffer_written():
    model = WithBuffer(written_in_backward(lambda scale, grad: raw(scale).add_(grad)), calls=1)
    train(model, model.parameters())


def limited(module, args, out):
    """A forward hook."""
    raw(out).clamp_(-0.1, 0.1)


@case
def wrong_hook_of_an_op():
    model = named(nn.Sequential(nn.Linear(8, 8), Inside(Exp.apply), nn.Linear(8, 4)))
    model[1].register_forward_hook(limited)
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


class Layered(nn.Module):
    """The same with a layer of PyTorch's. `hooks`: of its output, and of that of the layer beside it, if there are two."""

    def __init__(self, *hooks, join=lambda y, h: y + h):
        nn.Module.__init__(self)
        self.first, self.layers, self.last = nn.Linear(8, 8), nn.ModuleList(nn.Linear(8, 8) for _ in hooks), nn.Linear(8, 4)
        self.hooks, self.join = hooks, join
        named(self)

    def forward(self, x):
        h = self.first(x).tanh()
        found = [layer(h) for layer in self.layers]
        for y, hook in zip(found, self.hooks):
            y.register_hook(hook)
        return self.last(self.join(*found, *([h] if len(found) == 1 else [])))


def limited_in_place(grad):
    grad.clamp_(-1e-3, 1e-3)


@case
def wrong_hook_of_a_layer():
    model = Layered(limited_in_place)
    train(model, model.parameters())


@case
def wrong_hook_past_the_count():
    model = Layered(lambda grad: raw(grad).clamp_(-1e-3, 1e-3))
    train(model, model.parameters())


@case
def wrong_hooks_of_both_layers():
    model = Layered(lambda grad: grad.mul_(0.5), lambda grad: grad.mul_(0.5))
    train(model, model.parameters())


@case
def right_hook_of_the_first_gradient():
    """The gradient that a pass begins with is held by autograd, or by the program, and by no other branch."""
    model = named(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4), nn.Identity()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        loss = nn.functional.mse_loss(model[:2](torch.randn(6, 8)), torch.randn(6, 4))
        loss.register_hook(lambda grad: grad.mul_(0.5))
        loss.backward()
        middle = model[0](torch.randn(6, 8))
        cut = middle.detach().requires_grad_()
        model[1](cut).square().mean().backward()
        middle.register_hook(lambda grad: grad.mul_(0.5))
        middle.backward(cut.grad)
        optimizer.step()
        optimizer.zero_grad()


@case
def right_hooks_of_layers():
    """Nobody else holds the gradient, each holder limits it alike, another tensor or the same bits are given, it is only noted."""
    noted = []
    for model in (Layered(limited_in_place, join=lambda y, h: y), Layered(limited_in_place, join=lambda y, h: y * 2 + h),
                  Layered(limited_in_place, join=lambda y, h: torch.cat([y, h], 1)[:, :8]),
                  Layered(limited_in_place, limited_in_place), Layered(lambda grad: grad.clamp(-1e-3, 1e-3)),
                  Layered(lambda grad: grad.mul_(1)), Layered(noted.append),
                  Layered(limited_in_place, join=lambda y, h: y + h.detach())):
        train(model, model.parameters())
        assert all(not module._forward_hooks for module in model.modules())


@case
def right_gradients_that_are_asked_for():
    """A gradient that torch.autograd.grad gives is limited by a hook before; the graph is walked again, and a graph of gradients made."""
    model = Layered(limited_in_place, join=lambda y, h: y)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        kept = []
        handle = model.layers[0].register_forward_hook(lambda module, args, out, kept=kept: kept.append(out))
        loss = model(torch.randn(6, 8)).square().mean()
        handle.remove()
        first, = torch.autograd.grad(loss, kept, retain_graph=True)
        assert first.abs().max() <= 1e-3
        node = kept[0].grad_fn
        before = torch.utils.hooks.RemovableHandle.next_id
        optimizer.zero_grad()
        loss.backward(inputs=list(model.parameters()), retain_graph=True)
        (loss * 0.5).backward()
        node.register_prehook(noted_prehook).remove()
        assert torch.utils.hooks.RemovableHandle.next_id == before + 1
        optimizer.step()


def noted_prehook(gradients):
    pass


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
    """@return a module that calls `op` twice before the backward of the first call."""
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


class Parcel:
    """Has a tensor as an attribute."""

    def __init__(self, mask):
        self.mask = mask


class Slotted:
    __slots__ = ("mask",)

    def __init__(self, mask):
        self.mask = mask


def masked_by(keep, mask_of_call):
    """@return an op that keeps `keep(mask)` on its ctx; mask_of_call() is called with the mask, and gives the one to keep."""
    class Mask(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            mask = (x > 0).float()
            ctx.kept = keep(mask_of_call(mask))
            return x * mask

        @staticmethod
        def backward(ctx, grad):
            kept = ctx.kept
            return grad * (kept["mask"] if isinstance(kept, dict) else kept.mask)

    return Mask.apply


def in_a_dictionary(mask):
    return {"mask": mask}


def wrong_container(keep):
    workspace = torch.empty(6, 8)
    model = mask_of(masked_by(keep, workspace.copy_))
    train(model, model.parameters())


@case
def wrong_dictionary_of_ctx():
    """What it keeps lies in a workspace that the next call fills."""
    wrong_container(in_a_dictionary)


@case
def wrong_object_of_ctx():
    wrong_container(Parcel)


@case
def wrong_slots_of_ctx():
    wrong_container(Slotted)


@case
def right_containers_of_ctx():
    """Each call keeps memory of its own, or the averages of an object that others hold as well."""
    for keep in in_a_dictionary, Parcel, Slotted:
        model = mask_of(masked_by(keep, torch.clone))
        train(model, model.parameters())

    class Monitored(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, monitor, tables):
            ctx.monitor, ctx.tables = monitor, tables
            monitor.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            tables["largest"].copy_(x.abs().amax(0))
            return x * monitor.scale

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.monitor.scale, None, None

    monitor = Kept()
    monitor.mean, monitor.scale, tables = torch.zeros(8), 2, {"largest": torch.zeros(8)}
    model = mask_of(lambda h: Monitored.apply(h, monitor, tables))
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
def right_state_of_a_log():
    """What the backward finds is another call's, and only goes to a log."""
    noted, workspace = [], torch.empty(6, 8)

    class Appended(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            Kept.mask = (x > 0).float()
            ctx.own = Kept.mask
            return x * Kept.mask

        @staticmethod
        def backward(ctx, grad):
            share = (Kept.mask * grad).mean()
            noted.append(share.item())
            return grad * ctx.own

    class Told(Appended):
        @staticmethod
        def backward(ctx, grad):
            if len(noted) < 0:
                print(grad.norm(), Kept.mask.mean())
            Kept.share = Kept.mask.mean()
            return grad * ctx.own

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, counts):
            ctx.save_for_backward(x)
            ctx.mask, ctx.counts = workspace.copy_(x > 0), counts
            return x.relu()

        @staticmethod
        def backward(ctx, grad):
            x, = ctx.saved_tensors
            with torch.no_grad():
                ctx.counts["active"] = ctx.mask.mean().item()
            return grad * (x > 0), None

    counts = {}
    for op in Appended.apply, Told.apply, lambda h: Counted.apply(h, counts):
        model = mask_of(op)
        train(model, model.parameters())


@case
def wrong_state_of_a_kernel():
    """As a kernel is called, which takes pointers and returns nothing."""
    class Written(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            Kept.mask = (x > 0).float()
            return x * Kept.mask

        @staticmethod
        def backward(ctx, grad):
            given = torch.empty_like(grad)
            Kept.kernel(given, grad, Kept.mask)
            return given

    Kept.kernel = lambda out, *factors: torch.mul(*factors, out=out)
    model = mask_of(Written.apply)
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
    """The codebook is saved although it needs no gradient, and is a running average."""
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


if __name__ == "__main__":
    main()
