"""A small training whose settings are options; used by fact_runs_test.py.

usage: facts.py [KEY=VALUE...]: dropout=0.1 beta=0.95 smoothing=0.0 draw_at=STEP module=FOLDER gan=1 written=STEP
                tied=1 (block 2 has the weight of block 0) or 2 (a copy of it)
"""
import sys

import torch
from torch import nn

options = dict(dropout=0.1, beta=0.95, smoothing=0.0, draw_at=-1, module="", gan=0, written=-1, tied=0)
for option in sys.argv[1:]:
    key, value = option.split("=")
    options[key] = type(options[key])(value)
sys.path.insert(0, options["module"] or ".")
try:
    from block import Block
except ImportError:
    class Block(nn.Module):
        def __init__(self, dropout):
            super().__init__()
            self.lin, self.drop = nn.Linear(4, 4), nn.Dropout(dropout)

        def forward(self, x):
            return x + self.drop(self.lin(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(options["dropout"]) for _ in range(3))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 1)

    def forward(self, x):
        return self.lin(x)


torch.manual_seed(0)
model, criterion = Model(), nn.CrossEntropyLoss(label_smoothing=options["smoothing"])
if options["tied"] == 1:
    model.blocks[2].lin.weight = model.blocks[0].lin.weight
elif options["tied"] == 2:
    model.blocks[2].lin.weight.data.copy_(model.blocks[0].lin.weight)
critic = Critic() if options["gan"] else None
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, options["beta"]))
for step in range(5):
    if step == options["draw_at"]:
        torch.rand(3)
    out = model(torch.randn(8, 4))
    loss = criterion(out, torch.randint(3, (8,)))
    if critic is not None:
        loss = loss + critic(out).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == options["written"]:
        model.blocks[1].lin.bias.data *= 4
