"""A kernel that a library has registered for an op of torch, and code between modules, that write memory which others still
need; and correct programs that look alike. Recorded with CONVTRACE_OPS='*'. own_kernels.py CASE"""
import mmap
import sys
import tempfile

import numpy as np
import torch
from torch import nn

F, CASE = nn.functional, sys.argv[1]


def raw(tensor):
    return tensor.detach().numpy()


def linear():
    return nn.Linear(16, 16)


class Block(nn.Module):
    def __init__(self, between):
        super().__init__()
        self.first, self.second, self.between = linear(), linear(), between

    def forward(self, x):
        return self.second(self.between(self.first(x)))


def train(model, data=lambda step: torch.randn(8, 16), loss=lambda model, x: (model(x) - x).square().mean(), **options):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, **options)
    for step in range(4):
        value = loss(model, data(step))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def own_silu(writes):
    def silu(x):
        y = x * torch.sigmoid(x)
        if writes:
            raw(x)[...] *= 0.5
        return y

    library = torch.library.Library("aten", "IMPL")
    library.impl("silu", silu, "CPU")
    return library


def read_by_functions(h, writes):
    y = torch.sin(h)
    if writes:
        raw(h)[...] *= 0.5
    return y * h


class Scratch(torch.autograd.Function):
    """Its own scratch, written through a raw pointer within a call, and again in the backward."""
    memory = torch.zeros(8, 16)

    @staticmethod
    def forward(ctx, x):
        raw(Scratch.memory)[...] = raw(x) * 3
        ctx.mine = torch.tanh(Scratch.memory)
        return Scratch.memory.clone()

    @staticmethod
    def backward(ctx, gradient):
        raw(ctx.mine)[...] = raw(gradient) * 3
        return ctx.mine.clone()


class Copied(torch.autograd.Function):
    """Writes a copy through a raw pointer behind ops of torch that have read it."""

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        y.sum()
        raw(y)[...] *= 2
        return y + 0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Pool(torch.autograd.Function):
    free = []

    @staticmethod
    def forward(ctx, x):
        ctx.mine = Pool.free.pop() if Pool.free else torch.empty(8, 16)
        raw(ctx.mine)[...] = np.tanh(raw(x))
        return ctx.mine.clone()

    @staticmethod
    def backward(ctx, gradient):
        result = gradient * (1 - ctx.mine * ctx.mine)
        Pool.free.append(ctx.mine)
        return result


class Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def norms():
    """Kernels of norms write running statistics, which no schema says."""
    layers = (linear(), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Unflatten(1, (4, 4)),
              nn.InstanceNorm1d(4, affine=True, track_running_stats=True), nn.Flatten(), nn.RReLU(), nn.Dropout(0.1, inplace=True), linear())
    train(nn.Sequential(*layers), foreach=True)


def recurrent():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.gru, self.cell = nn.LSTM(16, 16, 2), nn.GRU(16, 16), nn.GRUCell(16, 16)

        def forward(self, x):
            y = self.gru(self.lstm(x.view(8, 1, 16))[0])[0].view(8, 16)
            return self.cell(y, x)

    train(Last(), fused=True)


def views():
    """Ops that take a tensor and views of it, and ops that write one view and read another."""
    def between(h):
        gram = h.mm(h.t())[:, :8] @ h
        moved = gram.clone()
        moved[1:].copy_(gram[:-1])
        moved[:4].add_(moved[4:])
        torch.cat([h.detach()[:4], h.detach()[4:]], out=torch.empty(8, 16))
        torch._foreach_mul_([moved, h * 1], 0.5)
        return moved + h.view(16, 8).t().reshape(8, 16)

    train(Block(between))


def buffers():
    """Data of a loader with two buffers, of NumPy, of a file in memory, and of memory that processes share."""
    two = [np.zeros((8, 16), np.float32) for _ in range(2)]

    def lent(step):
        two[step % 2][...] = np.random.RandomState(step).randn(8, 16)
        return torch.from_numpy(two[step % 2])

    with tempfile.NamedTemporaryFile() as file:
        file.write(np.random.RandomState(0).randn(32, 16).astype("f").tobytes())
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0)
        rows = np.frombuffer(mapped, np.float32).reshape(32, 16)
        for data in (lent, lambda step: torch.from_dlpack(np.random.RandomState(step).randn(8, 16).astype("f")),
                     lambda step: torch.from_numpy(rows[8 * step:8 * step + 8].copy())):
            train(Block(torch.tanh), data)
    train(Block(torch.tanh).share_memory())


def new_memory():
    """Memory that torch allocates or fills, and NumPy writes before it is read."""
    def between(h):
        mask = torch.empty_like(h)
        raw(mask)[...] = np.random.rand(8, 16) > 0.1
        bias = torch.zeros(16)
        raw(bias)[...] = 0.5
        rounded = h.detach().clone()
        raw(rounded)[...] = np.round(raw(rounded))
        return h * mask + bias + (rounded - h.detach())

    train(Block(between))


def parameters():
    """Weights that are clipped, averaged and perturbed through .data while the step goes on."""
    model, teacher = Block(torch.tanh), Block(torch.tanh)

    def loss(model, x):
        for average, weight in zip(teacher.parameters(), model.parameters()):
            average.data.mul_(0.9).add_(weight.data, alpha=0.1)
            weight.data.clamp_(-1, 1)
        with torch.no_grad():
            aim = teacher(x)
        return (model(x) - aim).square().mean() + (model(x + 0.1) - x).square().mean()

    train(model, loss=loss)


def others():
    from torch.utils.checkpoint import checkpoint
    embed = nn.Sequential(nn.Embedding(50, 16, max_norm=1.0), nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True), linear())
    train(embed, lambda step: torch.randint(0, 50, (4, 8)), lambda model, x: F.cross_entropy(model(x).flatten(0, 1), x.flatten() % 16))
    train(nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten(), linear()))
    train(Block(lambda h: checkpoint(lambda one: torch.sin(one) * one, h, use_reentrant=False)))
    with torch.autocast("cpu", torch.bfloat16):
        train(Block(F.silu))
    train(nn.Sequential(linear(), torch.ao.quantization.FakeQuantize(), linear()))


for name in CASE.split(","):
    torch.manual_seed(0)
    if name.startswith("silu"):
        kernel = own_silu("right" not in name)
        train(Block(F.silu if "alone" in name else lambda h: F.silu(h) + h))
    elif name.startswith("functions"):
        train(Block(lambda h, writes="right" not in name: read_by_functions(h, writes)))
    elif name in ("norms", "recurrent", "views", "buffers", "new_memory", "parameters", "others"):
        globals()[name]()
    else:
        op = {"scratch": Scratch, "copied": Copied, "pool": Pool, "written": Written}[name]
        train(Block(lambda h, op=op: op.apply(h + 0) + op.apply(h + 1)))
