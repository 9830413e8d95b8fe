"""Counts the functions of PyTorch for which a program's own tensors and modes are called.

usage: torch_function.py
"""
import collections

import torch
from torch import nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

COUNTS = collections.Counter()


class Counting(torch.Tensor):
    """A subclass that counts what it is asked."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        COUNTS[resolve_name(function) or getattr(function, "__qualname__", str(function))] += 1
        return super().__torch_function__(function, types, args, kwargs or {})


class Asked(torch.Tensor):
    """Counts what is asked of it, and has attributes of its own under names of torch's."""

    def __getattribute__(self, name):
        COUNTS["asked for " + name] += 1
        return super().__getattribute__(name)

    @property
    def shape(self):
        COUNTS["shape"] += 1
        return super().shape

    @property
    def grad(self):
        COUNTS["grad"] += 1
        return super().grad

    @grad.setter
    def grad(self, value):
        torch.Tensor.grad.__set__(self, value)

    @property
    def requires_grad(self):
        COUNTS["requires_grad"] += 1
        return super().requires_grad

    @requires_grad.setter
    def requires_grad(self, value):
        torch.Tensor.requires_grad.__set__(self, value)


class Duck:
    """No tensor at all, but PyTorch's functions take it."""

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        COUNTS["duck " + (resolve_name(function) or str(function))] += 1
        return function(*[a.tensor if isinstance(a, Duck) else a for a in args], **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        COUNTS[resolve_name(function) or getattr(function, "__qualname__", str(function))] += 1
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        COUNTS[str(function)] += 1
        return function(*args, **(kwargs or {}))


def told(name):
    print(name, sum(COUNTS.values()))
    for function, count in sorted(COUNTS.items()):
        print("   ", function, count)
    COUNTS.clear()


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def train(model, data=lambda: torch.randn(6, 4), make=lambda p: torch.optim.Adam(p, lr=0.01), criterion=nn.CrossEntropyLoss(),
          target=lambda: torch.tensor([0, 1, 2, 0, 1, 2])):
    optimizer = make(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss = criterion(model(data()), target())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print("loss", float(loss.detach().as_subclass(torch.Tensor)).hex())
    return optimizer


def counting_parameters():
    model = mlp()
    for layer in model[0], model[3]:
        layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Counting))
        layer.bias = nn.Parameter(layer.bias.detach().as_subclass(Counting))
    COUNTS.clear()
    train(model)


def counting_buffers():
    model = mlp()
    model[1].running_mean = model[1].running_mean.as_subclass(Counting)
    COUNTS.clear()
    train(model)


def counting_sgd_and_losses():
    model = mlp()
    model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Counting))
    COUNTS.clear()
    train(model, make=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), criterion=nn.MSELoss(), target=lambda: torch.ones(6, 3))


def asked():
    """Parameters, buffers, inputs and outputs that count what is asked of them."""
    model = mlp()
    model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Asked))
    model[1].register_buffer("extra", torch.zeros(1).as_subclass(Asked))
    COUNTS.clear()
    train(model, data=lambda: torch.randn(6, 4).as_subclass(Asked))


class Making(nn.Module):
    def forward(self, x):
        return x.as_subclass(Counting)


class Dropping(nn.Module):
    def forward(self, x):
        return x.as_subclass(torch.Tensor)


def by_hand():
    model = mlp()
    model[3].weight = nn.Parameter(model[3].weight.detach().as_subclass(Counting))
    COUNTS.clear()
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(6, 4)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad


def ducks():
    layer = nn.Sequential(nn.Identity(), nn.Linear(4, 4), nn.Identity())
    for _ in range(2):
        layer(Duck(torch.ones(2, 4))).sum().backward()


def expanded():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        call_for_per_sample_grads(model, loss_reduction="sum")(torch.randn(6, 4)).sum().backward()
        for parameter in model.parameters():
            parameter.grad, parameter.grad_sample = parameter.grad_sample.mean(0), None
        optimizer.step()
        optimizer.zero_grad()
    print("expanded", model[0].weight.sum().item().hex())


class Exponential(torch.autograd.Function):
    """Saves its own output, which each access makes anew by an operator."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(result := x.exp())
        return result

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class Exponentials(nn.Module):
    def forward(self, x):
        return Exponential.apply(x)


def saved(subclass=torch.Tensor):
    train(nn.Sequential(nn.Linear(4, 3), Exponentials()), data=lambda: torch.randn(6, 4).as_subclass(subclass))


def within(mode, call):
    with mode():
        call()


CASES = {
    "parameters": counting_parameters, "buffers": counting_buffers, "SGD and MSELoss": counting_sgd_and_losses,
    "inputs": lambda: train(mlp(), data=lambda: torch.randn(6, 4).as_subclass(Counting)),
    "inputs that require gradients": lambda: train(mlp(), data=lambda: torch.randn(6, 4).as_subclass(Counting).requires_grad_()),
    "targets": lambda: train(mlp(), target=lambda: torch.tensor([0, 1, 2, 0, 1, 2]).as_subclass(Counting)),
    "outputs": lambda: train(nn.Sequential(mlp(), Making())),
    "inside": lambda: train(nn.Sequential(nn.Linear(4, 4), Making(), nn.Linear(4, 3), Dropping())),
    "asked": asked, "by hand": by_hand, "ducks": ducks, "expanded weights": expanded,
    "mode of functions": lambda: within(Functions, lambda: train(mlp())),
    "mode of functions, by hand": lambda: within(Functions, by_hand),
    "mode of dispatch": lambda: within(Dispatched, lambda: train(mlp())),
    "both modes": lambda: within(Functions, lambda: within(Dispatched, lambda: train(mlp()))),
    "saved": lambda: saved(Counting), "saved, mode of dispatch": lambda: within(Dispatched, saved),
    "default device": lambda: within(lambda: torch.device("cpu"), lambda: train(mlp())),
}
for name, case in CASES.items():
    torch.manual_seed(0)
    case()
    told(name)
train(mlp())
