"""Correct programs whose gradients are the same in several steps, in whole or in parts. Prints each loss.

usage: repeating.py CASE
"""
import sys

import torch
from torch import nn
from torch.nn.functional import l1_loss, mse_loss, multi_margin_loss

STEPS = 24


def train(model, optimizer, loss_of, scheduler=None):
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        print(loss.item().hex())


def looked_at_first():
    """A few rows pass the model to show its output's shape; then all data are one batch, and the learning rate grows from 0."""
    inputs, targets = torch.randn(48, 12), torch.randn(48, 2)
    model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: done / 10)
    print(tuple(model(inputs[:3]).shape))
    train(model, optimizer, lambda: mse_loss(model(inputs), targets), scheduler)


def on_frozen_features(loss_of, targets):
    """Only signs, or which margins are violated, reach the head: few rows of its gradient change from step to step."""
    features = nn.Sequential(nn.Linear(12, 24), nn.ReLU()).requires_grad_(False)
    model = nn.Sequential(features, nn.Linear(24, 6))
    inputs = torch.randn(10, 12)
    train(model, torch.optim.Adam(model[1].parameters(), lr=0.003), lambda: loss_of(model(inputs), targets))


CASES = {"looked-at-first": looked_at_first,
         "distances": lambda: on_frozen_features(l1_loss, torch.randn(10, 6)),
         "margins": lambda: on_frozen_features(multi_margin_loss, torch.arange(10) % 6)}

torch.manual_seed(0)
CASES[sys.argv[1]]()
