"""Trains a model, and after step 1 makes the observer fail until it ends itself. argv[1]: the size of the data in step 4."""
import gc
import sys

import torch
from torch import nn

from convtrace_observer.observer import Observer

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    data = torch.randn(4, 8)
    if step == 4:
        data *= float(sys.argv[1])
    optimizer.zero_grad()
    model(data).pow(2).mean().backward()
    optimizer.step()
    if step == 1:
        observer, = (one for one in gc.get_objects() if type(one) is Observer)
        for _ in range(5):
            observer.failed("test", ValueError("none"))
