"""Tensors around the code of a backward (closures, globals, attributes) that later calls fill, or that only look alike
(needed_cases.py)."""
import torch
from needed_cases import Block, case, main, raw, train

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
def alike_closure_between():
    """One call in a step; the loop writes the buffer behind the forward pass, as it would set a count on purpose."""
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
def right_rows_of_a_table():
    """Each call has a row of a table of its own, or an entry of a history."""
    masks, history = torch.zeros(2, 6, 8), torch.zeros(4)
    count = [0]

    class Row(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.row = count[0] % 2
            count[0] += 1
            masks[ctx.row] = (x > 0).float()
            return x * masks[ctx.row]

        @staticmethod
        def backward(ctx, grad):
            return grad * masks[ctx.row]

    class Largest(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            history[count[0] % 4] = x.abs().max()
            count[0] += 1
            return x / 2

        @staticmethod
        def backward(ctx, grad):
            return grad / 2 * (history.max() > 0)

    for op in Row, Largest:
        trained(op.apply)


class Scale:
    def __init__(self):
        self.scale = torch.ones(())


@case
def right_scale_of_another_object():
    """As types of eight bits have: one scale for the forward, another one for the backward pass, which the loop sets."""
    forth, back = Scale(), Scale()

    class Cast(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            forth.scale = x.abs().max() + 1
            return x / forth.scale

        @staticmethod
        def backward(ctx, grad):
            return grad * back.scale

    def set_scale():
        back.scale = torch.rand(()) + 0.5

    model = twice(Cast.apply)
    train(model, model.parameters(), between=set_scale)


@case
def right_shape_of_a_buffer():
    buffer = torch.zeros(6, 8)

    class Shaped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            buffer.copy_(x)
            return buffer.tanh()

        @staticmethod
        def backward(ctx, grad):
            return torch.ones_like(buffer) * grad.view_as(buffer) * len(buffer)

    trained(Shaped.apply)


if __name__ == "__main__":
    main()
