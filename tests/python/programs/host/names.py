"""Deep ensembles, trained together and in turn, and many criteria: each model of a class has its own place in the training.

usage: names.py
"""
import torch
from torch import nn

MEMBERS, CRITERIA = 24, 40


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Weighted(nn.Module):
    """A criterion that has a weight of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, y, target):
        return self.scale * nn.functional.mse_loss(y, target)


torch.manual_seed(0)
nets = [Net() for _ in range(MEMBERS)]
optimizers = [torch.optim.Adam(net.parameters(), 1e-3) for net in nets]
for _ in range(4):  # all in one backward pass
    x = torch.randn(64, 16)
    y = x.sum(1, keepdim=True)
    losses = [nn.functional.mse_loss(net(x), y) for net in nets]
    for optimizer in optimizers:
        optimizer.zero_grad()
    sum(losses).backward()
    for optimizer in optimizers:
        optimizer.step()
print([loss.item().hex() for loss in losses])
stacks = [nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(MEMBERS)]
optimizers = [torch.optim.Adam(stack.parameters(), 1e-2) for stack in stacks]
for _ in range(4):
    for stack, optimizer in zip(stacks, optimizers):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(stack(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
    print(loss.item().hex())
head = nn.Linear(16, 1)
criteria = [Weighted() for _ in range(CRITERIA)] + [nn.MSELoss() for _ in range(CRITERIA)]
optimizer = torch.optim.SGD([*head.parameters(), *(p for one in criteria for p in one.parameters())], lr=1e-3)
for _ in range(3):
    x = torch.randn(64, 16)
    optimizer.zero_grad()
    loss = sum(one(head(x), x.sum(1, keepdim=True)) for one in criteria)
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
