"""Buffers that a recomputation writes in code of a module that is not called, or that only look so. `python recomputed.py CASE`"""
import contextlib
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Counting(nn.Module):
    """`inside`, `around` and `behind` get the module between two layers, in the recomputed part and behind it."""

    def __init__(self, run, inside=lambda one: None, behind=lambda one: None):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("load", torch.zeros(8))
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self.run, self.inside, self.behind = run, inside, behind

    def compute(self, x):
        h = self.first(x).tanh()
        self.inside(self)
        return self.last(h).tanh()

    def forward(self, x):
        y = self.run(self.compute, x)
        self.behind(self)
        return y


def count(one):
    one.load.add_(one.first.weight.detach().abs().mean(1))
    one.passes.add_(1)


def reentrant(function, x):
    return checkpoint(function, x, use_reentrant=True)


def other(function, x):
    return checkpoint(function, x, use_reentrant=False)


class Again(torch.autograd.Function):
    """A recomputation of the program's own."""

    @staticmethod
    def forward(ctx, x, function):
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.function(x)
        torch.autograd.backward(y, grad)
        return x.grad, None


def train(*middle, between=lambda: None):
    model = nn.Sequential(nn.Linear(8, 8), *middle, nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        loss = model(torch.randn(6, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        between()


@case
def wrong_method():
    train(Counting(reentrant, count), Counting(reentrant, count))


@case
def wrong_method_without_reentry():
    train(Counting(other, count), Counting(other, count))


@case
def wrong_function():
    train(Counting(lambda function, x: Again.apply(x, function), count))


@case
def right_counted_behind():
    train(*(Counting(run, behind=count) for run in (reentrant, other)))


@case
def right_counted_once():
    """No-grad mode tells the two passes apart; and the other way round."""
    train(Counting(reentrant, lambda one: torch.is_grad_enabled() or count(one)),
          Counting(reentrant, lambda one: torch.is_grad_enabled() and count(one)))


@case
def right_cleared_between_steps():
    """Counted in the recomputation alone, and cleared when the optimizer has used the counts."""
    one = Counting(reentrant, lambda one: torch.is_grad_enabled() and count(one))
    train(one, between=lambda: (one.load.zero_(), one.passes.zero_()))


@case
def right_counted_in_hooks():
    """A hook of the backward counts gradients in the buffer that the forward counts in, while other parts are recomputed."""
    middle = [Counting(run, behind=count) for run in (reentrant, other, lambda function, x: Again.apply(x, function))]
    for one in middle:
        one.first.register_full_backward_hook(lambda module, given, taken, one=one: count(one))
        one.last.register_full_backward_hook(lambda module, given, taken, one=one: count(one))
        one.register_full_backward_hook(lambda module, given, taken: count(module))
    train(*middle)


class PutsBack(Again):
    """The program's own recomputation, which puts the buffers back."""

    @staticmethod
    def backward(ctx, grad):
        one = ctx.function.__self__
        kept = {name: buffer.clone() for name, buffer in one.named_buffers()}
        grads = Again.backward(ctx, grad)
        for name, buffer in one.named_buffers():
            buffer.copy_(kept[name])
        return grads


class Kept(nn.Module):
    """A norm whose running statistics a context of the recomputation puts back."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    @contextlib.contextmanager
    def keep(self):
        kept = {name: buffer.clone() for name, buffer in self.norm.named_buffers()}
        try:
            yield
        finally:  # the recomputation may end early, by an exception
            for name, buffer in self.norm.named_buffers():
                buffer.copy_(kept[name])

    def forward(self, x):
        return checkpoint(lambda x: self.norm(self.first(x)).tanh(), x, use_reentrant=False,
                          context_fn=lambda: (contextlib.nullcontext(), self.keep()))


@case
def right_put_back():
    train(Counting(lambda function, x: PutsBack.apply(x, function), count), Kept())


@case
def right_put_back_by_the_root():
    model = Counting(lambda function, x: PutsBack.apply(x, function), count)
    for _ in range(4):
        model(torch.randn(6, 8, requires_grad=True)).square().mean().backward()


@case
def right_put_back_from_the_third_step():
    steps = iter(range(4))
    train(Counting(lambda function, x: (PutsBack.apply(x, function) if next(steps) > 1 else function(x)), count))


@case
def right_equal_value_written():
    def fill(one):
        one.load.fill_(2)

    train(Counting(reentrant, fill), Counting(other, fill))


@case
def right_module_called_in_a_hook():
    """A hook of the backward calls a layer, and later hooks write the buffers."""
    one = Counting(lambda function, x: function(x), behind=count)
    probe = nn.Linear(8, 8)

    def look(module, given, taken):
        with torch.no_grad():
            probe(taken[0])
        count(one)

    one.last.register_full_backward_hook(look)
    one.first.register_full_backward_hook(look)
    train(one)


if __name__ == "__main__":
    torch.manual_seed(0)
    CASES[sys.argv[1]]()
