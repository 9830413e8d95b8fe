"""Modules that call themselves without end: prints the errors, and trains behind them."""
import torch
from torch import nn


class Endless(nn.Module):
    def forward(self, x):
        return self(x)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(1, 1)

    def forward(self, x):
        return self.inner(self(x))


torch.manual_seed(0)
for kind in Endless, Inner:
    try:
        kind()(torch.ones(1))
    except RecursionError as error:
        print(error, error.__context__)
model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
for _ in range(3):
    loss = model(torch.randn(3, 2)).square().mean()
    loss.backward()
    print(loss.item())
Endless()(torch.ones(1))
