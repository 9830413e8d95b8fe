"""What anomaly mode of autograd prints: the stack of the forward call whose gradient is NaN.

usage: anomaly.py
"""
import torch
from torch import nn
from torch.nn import functional

model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 4)))
labels = torch.tensor([0, 1, 2])


def scores():
    return model(torch.ones(3, 4))


LOSSES = {
    "module": lambda: nn.CrossEntropyLoss(label_smoothing=0.1)(scores() * float("inf"), labels),
    "function": lambda: functional.cross_entropy(scores() * float("inf"), target=labels),
    "logarithms": lambda: functional.nll_loss(torch.log_softmax(scores() * float("inf"), 1), labels),
    "in a module": lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4), Root()))(scores()),
}


class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(x * 0).sum()


for name, loss in LOSSES.items():
    with torch.autograd.set_detect_anomaly(True):
        try:
            loss().backward()
        except RuntimeError as error:
            print(name, error)
