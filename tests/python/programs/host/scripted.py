"""Functions that convtrace replaces, in TorchScript: compiled before and after the first step, and traced.

usage: scripted.py
"""
import torch
import torch.nn.functional as F
from torch import nn


def gradient(x: torch.Tensor):
    return torch.autograd.grad([(x * x).sum()], [x])


def backward(x: torch.Tensor):
    y = (x * x).sum()
    y.backward()
    return y


def losses(x: torch.Tensor, target: torch.Tensor):
    return F.cross_entropy(x, target) + F.nll_loss(F.log_softmax(x, 1), target) + F.multi_margin_loss(x, target)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.linear = nn.Embedding(4, 4, padding_idx=0), nn.Linear(4, 4)
        self.criterion = nn.CrossEntropyLoss(ignore_index=0)

    def forward(self, ids: torch.Tensor):
        return self.criterion(self.linear(self.embedding(ids)), ids)


def compiled():
    for function, inputs in ((gradient, (torch.ones(3, requires_grad=True),)), (backward, (torch.ones(3, requires_grad=True),)),
                             (losses, (torch.eye(2), torch.tensor([0, 1])))):
        function = torch.jit.script(function)
        print(function.name, function(*inputs), [node.kind() for node in function.graph.nodes()])


def trained(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.tensor([1, 2, 0]))
        loss.backward()
        optimizer.step()
        print(loss.item().hex())


torch.manual_seed(0)
compiled()
trained(torch.jit.script(Model()))
trained(Model())
compiled()
trained(torch.jit.script(Model()))
trained(torch.jit.trace(Model(), (torch.tensor([1, 2]),)))
