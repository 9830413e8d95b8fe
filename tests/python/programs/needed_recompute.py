"""Buffers that are not persistent, and tensors in attributes, of modules that are recomputed for backward (needed_cases.py)."""
import torch
from needed_cases import case, main, named, train
from torch import nn
from torch.utils.checkpoint import checkpoint


class Stateful(nn.Module):
    """A layer with a buffer `seen` that is not persistent, and an attribute `last`; `write(self, h)` may change them."""

    def __init__(self, write, calls=1):
        nn.Module.__init__(self)
        self.layer, self.write, self.calls = nn.Linear(8, 8), write, calls
        self.register_buffer("seen", torch.zeros(8), persistent=False)
        self.last, self.number = torch.zeros(8), torch.zeros((), dtype=torch.long)
        self.is_first = True

    def forward(self, x):
        h = self.layer(x)
        with torch.no_grad():
            self.write(self, h)
        self.is_first = not self.is_first
        return (h - self.seen - self.last).tanh()


class Recomputed(nn.Module):
    def __init__(self, write, calls=1, reentrant=False, recompute=True):
        nn.Module.__init__(self)
        self.part, self.last = Stateful(write), nn.Linear(8, 4)
        self.calls, self.reentrant, self.recompute = calls, reentrant, recompute
        named(self)

    def forward(self, x):
        x = x.requires_grad_()
        for _ in range(self.calls):
            x = checkpoint(self.part, x, use_reentrant=self.reentrant) if self.recompute else self.part(x)
        return self.last(x)


def run(*given, **named_too):
    model = Recomputed(*given, **named_too)
    train(model, model.parameters())


def average(part, h):
    part.seen.mul_(0.5).add_(h.mean(0), alpha=0.5)


def replaced(part, h):
    part.last = part.last * 0.5 + h.mean(0) * 0.5


def counted(part, h):
    part.number += 1


@case
def wrong_average_that_is_not_persistent():
    run(average)
    run(average, reentrant=True)


@case
def wrong_average_in_an_attribute():
    run(replaced)


@case
def alike_number_of_calls():
    run(counted)


@case
def right_state():
    """Scratch memory and tables that each call writes anew, also in several calls; what one of the two passes changes; no
    recomputation."""
    def scratch(part, h):
        part.seen.copy_(h.mean(0))
        part.last = h.amax(0)

    def in_forward(part, h):
        if part.is_first:
            average(part, h)
            replaced(part, h)

    def in_recomputation(part, h):
        if not part.is_first:
            average(part, h)
            replaced(part, h)

    for write in scratch, in_forward, in_recomputation:
        run(write)
    run(scratch, calls=3)
    run(average, recompute=False)


if __name__ == "__main__":
    main()
