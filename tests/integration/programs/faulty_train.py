#!/usr/bin/env python3
"""Trains a small network for four steps, with faults planted: faulty_train.py FOLDER. Of each FAULT[+FAULT] on stdin,
FOLDER gets FAULT[+FAULT].ctrace.

Faults are what makes real runs part: a changed constant, type, seed, reduction or update, or nothing but rounding.
With "adam" the optimizer is one that makes whole updates of rounding.
"""
import os
import sys

import torch
import torch._dynamo  # noqa: F401 - the first optimizer would import it
import torch.nn.functional as F
from torch import nn

WIDTH, STEPS = 32, 4


class Block(nn.Module):
    def __init__(self, faults, number):
        super().__init__()
        here = number == 1
        self.ln = nn.LayerNorm(WIDTH, eps=1e-2 if "eps" in faults and here else 1e-5)
        self.fc1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.act = nn.Identity() if "fused" in faults else nn.GELU()
        self.drop = nn.Dropout(0.1 if "dropout" in faults and here else 0.0)
        self.fc2 = nn.Linear(2 * WIDTH, WIDTH)
        self.scale = 1.01 if "between" in faults and here else 1.0
        self.fused = "fused" in faults
        self.formula = "tanh" if "formula" in faults and here else "none"

    def forward(self, x):
        h = self.fc1(self.ln(x))
        h = F.gelu(h, approximate=self.formula) if self.fused else self.act(h)
        return x + self.fc2(self.drop(h) * self.scale)


class Net(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block(faults, number) for number in range(3))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class SplitLinear(nn.Linear):
    """The same sums in another order: as another kernel library would take them."""

    parts = 1

    def forward(self, x):
        pieces = zip(x.chunk(self.parts, -1), self.weight.chunk(self.parts, -1))
        return sum(part @ weight.t() for part, weight in pieces) + self.bias


def plant(net, faults):
    if "wrapper" in faults:
        net = nn.Sequential(net)
    if "dtype" in faults:
        net.blocks[1].fc1.to(torch.bfloat16)
        net.blocks[1].fc1.register_forward_pre_hook(lambda module, x: (x[0].bfloat16(),))
        net.blocks[1].fc1.register_forward_hook(lambda module, x, y: y.float())
    if "swapped" in faults:
        a, b = net.blocks[0].fc1.weight, net.blocks[2].fc1.weight
        a.data, b.data = b.data, a.data
    for fault in faults:
        if fault.startswith("split"):
            SplitLinear.parts = int(fault[5:])
            for block in net.blocks:
                block.fc1.__class__ = block.fc2.__class__ = SplitLinear
    return net


def groups(net, faults):
    decayed = [p for p in net.parameters() if p.dim() > 1 or "decay" in faults]
    others = [p for p in net.parameters() if p.dim() == 1 and "decay" not in faults]
    return [{"params": decayed, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}]


def main(faults):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    net = plant(Net(faults), faults)
    if "adam" in faults:
        optimizer = torch.optim.AdamW(groups(net, faults), lr=1.1e-3 if "lr" in faults else 1e-3)
    else:
        optimizer = torch.optim.SGD(groups(net, faults), lr=0.011 if "lr" in faults else 0.01)
    inputs, targets = torch.randn(STEPS, 64, WIDTH), torch.randint(4, (STEPS, 64))
    if "data" in faults:
        inputs[[2, 3]], targets[[2, 3]] = inputs[[3, 2]], targets[[3, 2]]
    for step in range(STEPS):
        loss = F.cross_entropy(net(inputs[step]), targets[step], reduction="sum" if "reduction" in faults else "mean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if "bit" in faults and step == 1:
            net.blocks[2].fc1.weight.data.view(torch.int32)[5, 7] ^= 1 << 24


def fork(name):
    """A process that imported PyTorch, and computed nothing, forks for each trace: an import costs more than a run."""
    os.environ["CONVTRACE_OUTPUT"] = os.path.join(sys.argv[1], name + ".ctrace")
    child = os.fork()
    if child == 0:
        main(set(name.split("+")))
        sys.exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(name + " failed")


if __name__ == "__main__":
    for line in sys.stdin.read().split():
        fork(line)
