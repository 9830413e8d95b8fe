"""Trains a linear layer, telling each step on stdout; the loss is what the line read from stdin says, if
any, so that a test drives it. Usage: loop.py STEPS"""
import sys

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
for step in range(int(sys.argv[1])):
    print("step", step, flush=True)
    scale = float(sys.stdin.readline() or "nan")
    optimizer.zero_grad()
    loss = (model(torch.ones(2, 4)) ** 2).mean() * 0 + scale
    loss.backward()
    optimizer.step()
print("end", flush=True)
