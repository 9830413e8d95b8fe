"""Parameters that exist before they are written: layers that get their sizes, and the values of their biases, by
their first call (torch_geometric's linear layers, and PyTorch's LazyLinear). The unwritten memory holds different
numbers in each process.

usage: lazy.py
"""
import os

import torch
from torch import nn


class Linear(nn.Module):
    """A linear layer whose bias is unwritten memory until the hook on its first call."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.parameter.UninitializedParameter()
        self.bias = nn.Parameter(torch.empty(size))
        self.hook = self.register_forward_pre_hook(self.initialize_parameters)

    @torch.no_grad()
    def initialize_parameters(self, module, given):
        if isinstance(self.weight, nn.parameter.UninitializedParameter):
            self.weight.materialize((len(self.bias), given[0].shape[-1]))
            nn.init.kaiming_uniform_(self.weight, a=5 ** 0.5)
            nn.init.zeros_(self.bias)
        self.hook.remove()
        del self.hook

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


def made(size, value):
    """A layer whose unwritten bias holds `value`, as freed memory does."""
    kept = []
    for _ in range(1000):
        scratch = [torch.full((size,), value) for _ in range(50)]
        del scratch
        layer = Linear(size)
        bias = layer.bias.detach()
        if ((bias == value) | (bias.isnan() & (value != value))).any():
            return layer
        kept.append(layer)
    raise RuntimeError("memory that was freed does not come again")


class Net(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.first, self.second = made(1200, value), made(1200, value)
        self.lazy, self.norm, self.last = nn.LazyLinear(32), nn.LazyBatchNorm1d(), nn.Linear(32, 4)

    def forward(self, x):
        return self.last(self.norm(self.lazy(self.second(self.first(x).relu()).relu())))


def train(value, look):
    torch.manual_seed(0)
    model = Net(value)
    if look:  # as the documents of these layers have it
        with torch.no_grad():
            model(torch.randn(20, 16))
    optimizer = None
    for _ in range(4):
        x, y = torch.randn(20, 16), torch.randint(0, 4, (20,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item().hex())


train(float(os.getpid()), look=True)
train(float("nan") if os.getpid() % 2 else float(os.getpid()), look=True)
train(float("nan"), look=False)
