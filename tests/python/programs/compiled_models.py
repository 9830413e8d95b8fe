"""Trains small models: compiled_models.py eager|compiled|faulty MODEL... Dynamo breaks their graphs, or puts nodes into them that are
no values. faulty: compiled, and a custom op gives another result. Prints the losses."""
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
kind, *names = sys.argv[1:]


@torch.library.custom_op("compiled_models::gate", mutates_args=())
def gate(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(weight) * (1.01 if kind == "faulty" else 1)


@gate.register_fake
def _(x, weight):
    return torch.empty_like(x)


def gate_backward(ctx, grad):
    x, weight = ctx.saved_tensors
    s = torch.sigmoid(weight)
    return grad * s, (grad * x * s * (1 - s)).sum(0)


gate.register_autograd(gate_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)


class NoGrad(Two):
    def forward(self, x):
        h = self.first(x)
        with torch.no_grad():
            factor = x + 1
        return self.second(h * factor)


class Autocast(Two):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            h = self.first(x)
        with torch.autocast("cpu", enabled=False):
            return self.second(h.float()) + x.sum()


class AutocastBetween(Two):
    def forward(self, x):
        h = self.first(x)
        with torch.autocast("cpu", enabled=False):
            factor = x.relu() * 3
        return self.second(h) * factor


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        y = self.layer(x)
        with torch.no_grad():
            z = x.abs() + 2
        return y + z


class WithoutGradients(Two):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        h = self.inner(self.first(x))
        with torch.set_grad_enabled(False):
            mean = (h * 2).mean(-1, keepdim=True)
        return self.second(h - mean)


class Checkpointed(Two):
    def forward(self, x):
        return self.second(checkpoint(lambda h: self.first(h).relu(), x, use_reentrant=False))


class CheckpointedModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.last = Inner(), Inner(), nn.Linear(16, 16)

    def forward(self, x):
        return self.last(checkpoint(self.b, self.a(x), use_reentrant=False))


@torch.compiler.disable
def not_compiled(x):
    return x.cumsum(0).tanh()


class Disabled(Two):
    def forward(self, x):
        return self.second(not_compiled(self.first(x)))


class Broken(Two):
    def forward(self, x):
        h = self.first(x)
        torch._dynamo.graph_break()
        h = h * 2
        with torch.no_grad():
            factor = x - 1
        torch._dynamo.graph_break()
        return self.second(h * factor)


class OfANumber(Two):
    def forward(self, x):
        h = self.first(x)
        if h.sum().item() > -1e9:
            h = h + 1
        return self.second(h)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(16))

    def forward(self, x):
        return gate(x, self.weight)


class Gates(Two):
    def __init__(self):
        super().__init__()
        self.gate_1, self.gate_2 = Gate(), Gate()

    def forward(self, x):
        return self.second(self.gate_2(self.first(self.gate_1(x))))


class Detached(Two):
    def forward(self, x):
        h = self.first(x)
        return self.second(h + (h.round() - h).detach())


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 32)

    def forward(self, x):
        a, b = self.layer(x).chunk(2, -1)
        with torch.no_grad():
            mask = (x > 0).float()
        return a.view(2, 4, 16), b * mask


class Shapes(Two):
    def __init__(self):
        super().__init__()
        self.halves = Halves()

    def forward(self, x):
        a, b = self.halves(x)
        return self.second(a.reshape(8, 16) + b)


def train(make):
    torch.manual_seed(0)
    model = make()
    run = model if kind == "eager" else torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(2):
        x = torch.randn(8, 16)
        loss = (run(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.inference_mode():
        return loss.item(), run(x).sum().item()


for name in names:
    print(name, *train(globals()[name]))
