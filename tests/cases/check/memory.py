"""Programs in which one memory has two owners, or is written once too often."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from parts import CLASSES, WIDTH, Classifier, adamw, fit, load, sgd, vectors


def shared_average(faulty):
    """An optimizer's averages are made by shape: layers of one shape have one."""
    model = Classifier()
    optimizer, by_shape = adamw(model), {}
    for number, (x, y) in enumerate(load(vectors())):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        for parameter, state in optimizer.state.items() if number == 0 else ():
            fresh = state["exp_avg"].clone()
            state["exp_avg"] = by_shape.setdefault(parameter.shape, fresh) if faulty else fresh


def flat_gradients(faulty):
    """Gradients are views of one buffer, whose offsets are those of the parameters without the last row."""
    model = Classifier()
    buffer, at = torch.zeros(1 << 16), 0
    for parameter in model.parameters():
        parameter.grad = buffer[at:at + parameter.numel()].view_as(parameter)
        at += parameter.numel() - (parameter.shape[-1] if faulty and parameter.dim() > 1 else 0)
    optimizer = adamw(model)
    for x, y in load(vectors()):
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


class Doubling(torch.autograd.Function):
    """Writes into a buffer that it keeps, as a kernel does that takes a pointer."""
    buffer = None  # made in the process that trains

    @staticmethod
    def forward(ctx, x):
        if Doubling.buffer is None:
            Doubling.buffer = torch.zeros(1 << 12)
        kept = Doubling.buffer[:x.numel()].view_as(x)
        kept.numpy()[...] = 2 * x.detach().numpy()
        return kept

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Branches(nn.Module):
    """Two branches through one op, added up when both are there."""

    def __init__(self, copies):
        super().__init__()
        self.left, self.right, self.head = (nn.Linear(WIDTH, n) for n in (WIDTH, WIDTH, CLASSES))
        self.copies = copies

    def forward(self, x):
        left = Doubling.apply(self.left(x))
        if self.copies:
            left = left.clone()
        return self.head(left + Doubling.apply(self.right(x)))


def reused_buffer(faulty):
    model = Branches(copies=not faulty)
    fit(model, sgd(model))


class Normed(nn.Module):
    """Recomputes a block with running statistics, or all of it but the norm."""

    def __init__(self, whole):
        super().__init__()
        self.up, self.norm, self.head = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, CLASSES)
        self.whole = whole

    def block(self, x):
        return self.norm(torch.tanh(self.up(x)))

    def forward(self, x):
        if self.whole:
            return self.head(checkpoint(self.block, x, use_reentrant=False))
        return self.head(self.norm(checkpoint(lambda x: torch.tanh(self.up(x)), x, use_reentrant=False)))


def checkpointed_norm(faulty):
    model = Normed(whole=faulty)
    fit(model, adamw(model))
