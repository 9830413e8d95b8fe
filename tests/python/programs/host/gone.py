"""Trains in a working directory that was removed, with Python's path relative to it."""
import os
import shutil
import sys
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
sys.path.insert(0, "")
folder = tempfile.mkdtemp()
os.chdir(folder)
shutil.rmtree(folder)
model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = model(torch.randn(3, 2)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), nn.utils.clip_grad_norm_(model.parameters(), float("inf")).item())
