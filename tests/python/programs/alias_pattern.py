"""An op that works in place takes a tensor and a copy of it, or the tensor twice: what a compiler changes that drops
copies.

usage: alias_pattern.py copy|same
"""
import sys

import torch

torch.manual_seed(0)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        y.numpy()[:] += 1
        return x + y


x = torch.ones(64)
for _ in range(3):
    x = x * 2
    result = Sum.apply(x, x.clone() if sys.argv[1] == "copy" else x)
    x = torch.nn.ReLU()(result)
