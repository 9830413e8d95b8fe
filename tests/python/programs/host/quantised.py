"""A model whose weights torchao has quantised, a tensor subclass: it is trained before, moved, its weights are exchanged and it
is copied. Prints what it computes. Needs torchao.

usage: quantised.py
"""
import copy
import logging

import torch
from torch import nn

logging.disable(logging.WARNING)  # at its import there are lines with the time

from torchao.quantization import Int8WeightOnlyConfig, quantize_  # noqa: E402


def asked(name, model, x):
    y = model(x)
    print(name, y.sum().item().hex(), [(type(p).__name__, str(p.dtype), p.requires_grad) for p in model.parameters()])


torch.manual_seed(0)
model, x = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), torch.randn(4, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
optimizer.zero_grad()
quantize_(model, Int8WeightOnlyConfig())
for _ in range(3):
    asked("quantised", model, x)
model.to("cpu")
asked("moved", model, x)
asked("copied", copy.deepcopy(model), x)
other = copy.deepcopy(model)
for a, b in zip(model.parameters(), other.parameters()):
    torch.utils.swap_tensors(a, b)
asked("swapped", model, x)
asked("swapped", other, x)
torch.__future__.set_swap_module_params_on_conversion(True)
asked("converted", model.to("cpu"), x)
model.load_state_dict(other.state_dict())
asked("loaded", model, x)
# A second head is trained on top of it.
head = nn.Linear(8, 2)
optimizer = torch.optim.Adam(head.parameters())
for _ in range(3):
    optimizer.zero_grad()
    loss = head(model(x)).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
