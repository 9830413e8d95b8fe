"""One training run: a model, its data, its optimizer and its loop, with what a fault may change as plain attributes."""
import contextlib

import torch
import torch.nn.functional as F
from torch import nn

import layers


def tokens(batch, length, vocabulary):
    def draw(generator):
        shape = (batch, length)
        return torch.randint(vocabulary, shape, generator=generator), torch.randint(vocabulary, shape, generator=generator)

    return draw


def pictures(batch, size, classes=10, dense=False):
    """dense: a class for each pixel."""
    def draw(generator):
        shape = (batch, size, size) if dense else (batch,)
        return torch.randn(batch, 3, size, size, generator=generator), torch.randint(classes, shape, generator=generator)

    return draw


def adamw(model, **options):
    matrices, vectors = ([p for p in model.parameters() if (p.dim() > 1) == wanted] for wanted in (True, False))
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                             lr=1e-3, betas=(0.9, 0.95), **options)


class Lion(torch.optim.Optimizer):
    """The sign of a momentum, as in arXiv 2302.06675."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.add_(kept.lerp(p.grad, 1 - group["betas"][0]).sign(), alpha=-group["lr"])
                kept.lerp_(p.grad, 1 - group["betas"][1])


class Criterion:
    """The same as nn.CrossEntropyLoss, but not a module."""
    reduction, label_smoothing = "mean", 0.0

    def __call__(self, out, y):
        return F.cross_entropy(out, y, reduction=self.reduction, label_smoothing=self.label_smoothing)


class Training:
    clip = 0.5                       # None: off
    rolled = False                   # the batch's inputs against its targets
    stale = False                    # gradients of the step before are kept

    def __init__(self, build, draw, optimizer=adamw, *, precision="f32", variant="plain", seed=11, steps=6, micro=1,
                 criterion=Criterion):
        torch.manual_seed(seed)
        torch.set_num_threads(2 if variant == "threads" else 1)
        torch.backends.mkldnn.enabled = variant != "blas"
        layers.variant = variant
        self.generator = torch.Generator().manual_seed(seed)
        self.precision, self.draw, self.steps, self.micro = precision, draw, steps, micro
        self.criterion = criterion()
        self.model = build().bfloat16() if precision == "bf16" else build()
        self.optimizer = optimizer(self.model, **({"fused": True} if variant == "fused" else {}))

    def at(self, name):
        return self.model.get_submodule(name)

    def loss(self):
        x, y = self.draw(self.generator)
        if self.precision == "bf16" and x.is_floating_point():
            x = x.bfloat16()
        if self.rolled:
            x = x.roll(1, 0)
        narrow = self.precision == "autocast"
        with torch.autocast("cpu", torch.bfloat16) if narrow else contextlib.nullcontext():
            out = self.model(x).float()
        out = out.flatten(0, 1) if y.dim() == 2 else out
        return self.criterion(out, y.flatten() if y.dim() == 2 else y)

    def run(self, plant=None, since=0):
        """Trains the model; plant(self) is called before step `since`."""
        for step in range(self.steps):
            if plant and step == since:
                plant(self)
            if not self.stale:
                self.optimizer.zero_grad()
            for _ in range(self.micro):
                (self.loss() / self.micro).backward()
            if self.clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
