"""Gradients of inputs without an optimizer, as attributions take them, while more and more models live. Prints the gradients.

usage: attributions.py
"""
import torch
from torch import nn


def made():
    return nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2))


torch.manual_seed(0)
kept = []
for living in 0, 40, 80:
    while len(kept) < living:
        kept.append(made())
        with torch.no_grad():
            kept[-1](torch.ones(1, 3))
    model, point = made(), torch.ones(1, 3, requires_grad=True)
    for _ in range(5):
        gradient, = torch.autograd.grad(model(point).sum(), point)
        print(living, [value.hex() for value in gradient.flatten().tolist()])
        point = (point + gradient).detach().requires_grad_()
