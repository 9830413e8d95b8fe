"""Programs of which one run alone has a story: a loss that blows up, one gradient that kills its parameter, a model that
nobody put into training mode, a gradient of negative infinities alone.
"""
import torch
import torch.nn.functional as F
from torch import nn

from parts import CLASSES, WIDTH, Classifier, Conv, adamw, learn, load, pictures, sgd, vectors


def _regression(steps, width=12):
    draw = torch.Generator().manual_seed(1)
    truth = torch.randn(width, 4, generator=draw)
    for _ in range(steps):
        x = torch.randn(64, width, generator=draw)
        yield x, x @ truth


def blow_up(faulty):
    """The learning rate is thirty times too large."""
    model = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 4))
    optimizer = sgd(model, 0.6 if faulty else 0.02)
    for x, y in _regression(30):
        learn(model, optimizer, x, y, F.mse_loss)


def blow_up_late(faulty):
    """After ten good steps the learning rate grows without limit."""
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = sgd(model, 0.02)
    for step, (x, y) in enumerate(_regression(30)):
        if faulty and step >= 10:
            optimizer.param_groups[0]["lr"] = 5.0
        learn(model, optimizer, x, y, F.mse_loss)


def _exploded(faulty, at, make, part):
    model = Classifier()
    optimizer = make(model)
    for step, (x, y) in enumerate(load(vectors())):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if faulty and step == at:
            part(model).grad.fill_(-1e25)
        optimizer.step()


def exploded_first(faulty):
    """A gradient explodes in the first step."""
    _exploded(faulty, 0, adamw, lambda model: model.stem.weight)


def exploded_with_decay(faulty):
    """Weight decay continues to move a parameter that is dead."""
    _exploded(faulty, 4, lambda model: torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.1), lambda model: model.head.weight)


def exploded_rmsprop(faulty):
    """RMSprop, another optimizer that keeps averages of squares."""
    _exploded(faulty, 3, lambda model: torch.optim.RMSprop(model.parameters(), 1e-3), lambda model: model.blocks[0].up.bias)


def exploded_in_part(faulty):
    """Only one row is dead; the others continue to move."""
    _exploded(faulty, 3, adamw, lambda model: _Row(model.head.weight))


class _Row:
    def __init__(self, weight):
        self.grad = weight.grad[1]


def forgotten_train(faulty):
    """The model comes in evaluation mode, as a hub gives it."""
    model = Conv().eval()
    if not faulty:
        model.train()
    optimizer = adamw(model)
    for x, y in load(pictures()):
        learn(model, optimizer, x, y)


class Tuned(nn.Module):
    """A stem that was trained before, frozen and in evaluation mode, and a head with a dropout."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.3), nn.Linear(WIDTH, CLASSES))

    def forward(self, x):
        return self.head(self.stem(x))


def forgotten_head(faulty):
    """Only the head trains, and only it should be in training mode."""
    model = Tuned().eval()
    model.stem.requires_grad_(False)
    if not faulty:
        model.head.train()
    optimizer = adamw(model.head)
    for x, y in load(vectors()):
        learn(model, optimizer, x, y)


class Rooted(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x - torch.sqrt(self.p)


def negative_infinity(faulty):
    """The root of a parameter that became 0: its gradient is negative infinity alone."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Rooted())
    optimizer = sgd(model, 0.01)
    for step, (x, _) in enumerate(load(vectors())):
        if step == 4:
            with torch.no_grad():
                model[1].p.fill_(0 if faulty else 1)
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
