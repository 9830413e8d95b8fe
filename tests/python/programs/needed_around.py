"""Tensors around the code of a backward or of a hook (closures, globals, attributes) that later calls fill, or that only look alike
(needed_cases.py)."""
import torch
from needed_cases import Block, case, main, named, raw, train
from torch import nn

scratch = None  # a global of ops


def twice(op):
    """@return a module that calls `op` twice before the backward of the first call."""
    return Block(lambda h: op(0.3 - op(h)))


def trained(op, **how):
    model = twice(op)
    train(model, model.parameters(), **how)


def gated():
    """@return an op that keeps its gate in a buffer around it, and the buffer."""
    gate = torch.zeros(6, 8)

    class Gated(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            gate.copy_(x.sigmoid())
            return x * gate

        @staticmethod
        def backward(ctx, grad):
            return grad * gate

    return Gated.apply, gate


@case
def wrong_closure_of_a_function():
    trained(gated()[0])


@case
def wrong_closure_between():
    """One call in a step; the loop writes the buffer behind the forward pass."""
    op, gate = gated()
    model = Block(op)
    train(model, model.parameters(), between=lambda: gate.normal_())


@case
def wrong_global_of_a_function():
    class Masked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            global scratch
            scratch = (x > 0).float()
            return x * scratch

        @staticmethod
        def backward(ctx, grad):
            return grad * scratch

    trained(Masked.apply)


@case
def wrong_out_of_a_function():
    weights = torch.empty(6, 8)

    class Out(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            torch.sigmoid(x, out=weights)
            return x * weights

        @staticmethod
        def backward(ctx, grad):
            return torch.mul(grad, weights)

    trained(Out.apply)


class Workspace:
    mask = None


@case
def wrong_workspace_of_an_object():
    """The attribute is made once, and filled by each call."""
    space = Workspace()

    class Spaced(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if space.mask is None or space.mask.shape != x.shape:
                space.mask = torch.empty_like(x)
            space.mask[...] = x > 0
            return x * space.mask

        @staticmethod
        def backward(ctx, grad):
            return grad * space.mask

    trained(Spaced.apply)


@case
def wrong_closure_of_a_hook():
    mask = torch.zeros(6, 8)

    def scaled(h):
        y = h.tanh()
        mask.copy_(y.detach() > 0)
        y.register_hook(lambda grad: grad * mask)
        return y

    trained(scaled)


class Hooked(nn.Module):
    """`renewed`: each call has a mask of its own."""

    def __init__(self, renewed):
        nn.Module.__init__(self)
        self.layer, self.renewed, self.mask = nn.Linear(8, 8), renewed, torch.zeros(6, 8)

    def forward(self, x):
        y = self.layer(x)
        self.mask = (y.detach() > 0).float()
        mask = self.mask
        y.register_hook((lambda grad: grad * mask) if self.renewed else self.masked)
        return y

    def masked(self, grad):
        return grad * self.mask


@case
def wrong_attribute_of_a_hook():
    trained(Hooked(False))


@case
def wrong_noise_of_a_hook():
    """The loop draws new numbers before the hook takes those of the forward pass."""
    noise = torch.zeros(6, 8)

    def noisy(h):
        noise.normal_()
        y = h + noise
        y.register_hook(lambda grad: grad * (1 + 0.1 * noise))
        return y

    model = Block(noisy)
    train(model, model.parameters(), between=lambda: noise.normal_())


@case
def right_closures_of_functions():
    """Averages, what the backward fills itself, what it only logs into, one call a step, and what comes from a stack."""
    mean, filled, norms, stack = torch.ones(8), torch.empty(6, 8), torch.zeros(8), []

    class Averaged(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            mean.mul_(0.9).add_(x.abs().mean(0), alpha=0.1)
            return x / mean

        @staticmethod
        def backward(ctx, grad):
            return grad / mean

    class Copied(Averaged):
        @staticmethod
        def forward(ctx, x):
            mean.copy_(0.9 * mean + 0.1 * x.abs().mean(0))
            return x / mean

        @staticmethod
        def backward(ctx, grad):
            return grad / mean

    def fill(buffer, x):
        raw(buffer).copy_(x)
        return buffer

    class Filled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            filled.copy_(x.tanh())
            return filled.clone()

        @staticmethod
        def backward(ctx, grad):
            x, = ctx.saved_tensors
            return grad * (1 - fill(filled, x.tanh()) * filled)

    class Logged(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            norms.zero_()
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            norms.add_(grad.abs().sum(0))
            return grad * 2

    class Stacked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            stack.append(x > 0)
            return x * stack[-1]

        @staticmethod
        def backward(ctx, grad):
            return grad * stack.pop()

    class Constant(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            filled.fill_(0.5)
            return x * filled

        @staticmethod
        def backward(ctx, grad):
            return grad * filled

    for op in Averaged, Copied, Filled, Logged, Stacked, Constant:
        trained(op.apply)
    model = Block(gated()[0])
    train(model, model.parameters())


@case
def right_scratch_of_a_backward():
    """Each backward computes its gate again, in the buffer that the forward used."""
    gate = torch.empty(6, 8)

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            gate.copy_(x.sigmoid())
            return x * gate

        @staticmethod
        def backward(ctx, grad):
            x, = ctx.saved_tensors
            torch.sigmoid(x, out=gate)
            return grad * gate * (1 + x * (1 - gate))

    trained(Again.apply)


@case
def right_closures_of_hooks():
    """A mask for each call, an average, a scale that is known behind the forward pass, a log, and a graph that is not used."""
    mean, scale, log = torch.ones(8), torch.ones(()), torch.zeros(8)

    def masked(h):
        y = h.tanh()
        mask = (y.detach() > 0).float()
        y.register_hook(lambda grad: grad * mask)
        return y

    def averaged(h):
        y = h.tanh()
        mean.mul_(0.9).add_(y.detach().abs().mean(0), alpha=0.1)
        y.register_hook(lambda grad: grad / mean)
        return y

    def scaled(h):
        y = h.tanh()
        y.register_hook(lambda grad: grad * scale)
        return y

    def note(grad):
        log.add_(grad.abs().sum(0))

    def logged(h):
        log.zero_()
        y = h.tanh()
        y.register_hook(note)
        return y

    for op in masked, averaged, logged:
        trained(op)
    trained(scaled, between=lambda: scale.fill_(0.5))
    trained(Hooked(True))
    single = Hooked(False)
    model = named(nn.Sequential(single, nn.Linear(8, 4)))

    def tried_before(x):
        model(x + 1)  # its graph is dropped
        return model(x)

    train(tried_before, model.parameters())


if __name__ == "__main__":
    main()
