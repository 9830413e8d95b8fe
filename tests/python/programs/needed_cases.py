"""Common parts of needed_ops.py, needed_state.py, needed_calls.py, needed_between.py and needed_around.py. Their cases write memory
that is still needed (wrong_*), only look alike (right_*), or cannot be distinguished from faulty ones (alike_*).

A case's model has a class of the case's name, which findings show. `python needed_ops.py wrong|right|alike|CASE DEVICE`"""
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


class Inside(nn.Module):
    """Calls an op as a module."""

    def __init__(self, op):
        nn.Module.__init__(self)
        self.op = op

    def forward(self, x):
        return self.op(x)


def main():
    torch.manual_seed(0)
    torch.set_default_device(sys.argv[2])
    first = nn.Linear(1, 1)  # the first model of a program has no name
    first(torch.ones(1))
    for name in CASES:
        if name.startswith(sys.argv[1]):
            running[:] = [name]
            CASES[name]()
