"""Programs whose numbers leave the range: not a number, a loss scale that collapses, saturated values."""
import itertools

import torch
import torch.nn.functional as F
from torch import nn

from parts import CLASSES, WIDTH, adamw, load, pictures, sgd, vectors


class AddBias(torch.autograd.Function):
    """The gradient of its bias is summed in blocks; the last block is not written from the fifth step on."""

    @staticmethod
    def forward(ctx, x, bias, calls, faulty):
        ctx.unwritten = faulty and next(calls) >= 5
        return x + bias[:, None, None]

    @staticmethod
    def backward(ctx, grad):
        sums = torch.full((grad.shape[1],), float("nan"))
        written = grad.shape[1] - (4 if ctx.unwritten else 0)
        sums[:written] = grad.sum((0, 2, 3))[:written]
        return grad, sums, None, None


class Biased(nn.Module):
    def __init__(self, faulty, width=12):
        super().__init__()
        self.conv, self.bias = nn.Conv2d(3, width, 3, bias=False), nn.Parameter(torch.zeros(width))
        self.head, self.faulty, self.calls = nn.Linear(width, CLASSES), faulty, itertools.count()

    def forward(self, x):
        return self.head(torch.relu(AddBias.apply(self.conv(x), self.bias, self.calls, self.faulty)).mean((2, 3)))


def bias_gradient(faulty):
    """Clipping makes all gradients of one that is not a number."""
    model = Biased(faulty)
    optimizer = adamw(model)
    for x, y in load(pictures()):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()


class Masked(nn.Module):
    """Attention of sequences of which some are empty: their rows have no key to look at."""

    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x, seen):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2) / WIDTH ** 0.5).masked_fill(~seen[:, None], float("-inf"))
        return self.head((scores.softmax(-1) @ v).mean(1))


def collapsing_scale(faulty):
    """Each batch has an empty sequence, so each step is skipped and halves the scale."""
    model, scaler = Masked(), torch.amp.GradScaler("cpu")
    optimizer = sgd(model, 0.1)
    for x, y in load(vectors(16 * 8 * 12), batch=16 * 8):
        x, y = x.view(16, 8, WIDTH), y[::8]
        lengths = torch.arange(16) % 8 + (0 if faulty else 1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            out = model(x, torch.arange(8)[None] < lengths[:, None])
        scaler.scale(F.cross_entropy(out.float(), y)).backward()
        scaler.step(optimizer)
        scaler.update()


class Half(nn.Module):
    """Stores its input times a scale in 16 bits, at most the largest number; the scale is that of the first call or of each."""

    def __init__(self, faulty):
        super().__init__()
        self.faulty, self.scale = faulty, None

    def forward(self, x):
        if self.scale is None or not self.faulty:
            self.scale = 16384 / x.detach().abs().max().item()
        return (x * self.scale).clamp(-65504, 65504).half()


class Scaled(nn.Module):
    def __init__(self, faulty):
        super().__init__()
        self.stem, self.stored, self.head = nn.Linear(WIDTH, WIDTH), Half(faulty), nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(self.stored(self.stem(x)).float() / self.stored.scale)


def saturating(faulty):
    """The targets grow, the activations follow, and the scale that was set once does not."""
    model = Scaled(faulty)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.15)
    for step, (x, _) in enumerate(load(vectors(16 * 12))):
        optimizer.zero_grad()
        F.mse_loss(model(x), x[:, :8].sum(1, keepdim=True) * (20 + 5 * step)).backward()
        optimizer.step()
