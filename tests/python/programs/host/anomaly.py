"""The output of autograd's anomaly mode: the stack of the forward call whose gradient is NaN.

usage: anomaly.py
"""
import torch
from torch import nn
from torch.nn import functional

model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 4)))
labels = torch.tensor([0, 1, 2])


def scores():
    return model(torch.ones(3, 4))


LOSSES = {
    "module": lambda: nn.CrossEntropyLoss(label_smoothing=0.1)(scores() * float("inf"), labels),
    "function": lambda: functional.cross_entropy(scores() * float("inf"), target=labels),
    "logarithms": lambda: functional.nll_loss(torch.log_softmax(scores() * float("inf"), 1), labels),
    "in a module": lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4), Root()))(scores()),
}


class NoNumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("nan")


@torch.library.custom_op("convtrace_host::no_number", mutates_args=())
def no_number(x: torch.Tensor) -> torch.Tensor:
    return x * 1


no_number.register_autograd(lambda ctx, gradient: gradient * float("nan"))


class Calls(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(x * 0).sum()


for name, call in {"Function": lambda x: NoNumber.apply(x), "op": lambda x: no_number(x),
                   "packet": lambda x: torch.ops.convtrace_host.no_number(x)}.items():
    LOSSES[name] = lambda call=call: call(scores()).sum()
    LOSSES[name + " in a module"] = lambda call=call: nn.Sequential(nn.Linear(4, 4), Calls(call))(scores()).sum()
    LOSSES[name + " in a closure"] = lambda call=call: torch.optim.LBFGS(model.parameters()).step(lambda: passed(call))


def passed(call):
    loss = call(scores()).sum()
    loss.backward()
    return loss


for name, loss in LOSSES.items():
    with torch.autograd.set_detect_anomaly(True):
        try:
            loss().backward()
        except RuntimeError as error:
            print(name, error)
