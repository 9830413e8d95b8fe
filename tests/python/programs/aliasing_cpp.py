"""Ops of an extension in C++ (aliasing_ops.cpp) that hand out memory that they do not own, forward and
backward, and one that is right.

usage: aliasing_cpp.py LIBRARY [DEVICE]
"""
import sys

import torch

torch.manual_seed(0)
torch.ops.load_library(sys.argv[1])
ops = torch.ops.aliasing_cpp


class Borrow(torch.autograd.Function):
    """A function whose backward calls the extension."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return ops.borrow_gradient(gradient * 1)


def fresh():
    return torch.randn(64, 64, device=sys.argv[2] if len(sys.argv) > 2 else "cpu")


def forward():
    y = ops.borrow(fresh())
    return y.sum() + fresh().sum()


def backward():
    weight = fresh().requires_grad_()
    (Borrow.apply(weight) * 3).sum().backward()
    return weight.grad.sum() + fresh().sum()


def hidden():
    return ops.hide(fresh()).sum()


def kept():
    y = ops.keep(fresh())
    return y.sum() + fresh().sum()


for case in (forward, backward, hidden, kept):
    result = float(case().detach())
    # Dangling memory may have any content.
    print(case.__name__, "" if case in (forward, backward) else result.hex())
    fresh()
