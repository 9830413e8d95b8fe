"""A fourth set, for what strains the rules: scans, outliers, sharp choices, deep and thin networks, tiny batches."""
import torch
import torch.nn.functional as F
from torch import nn

import training
from held_out import with_parameters
from held_out_2 import rows
from held_out_3 import texts
from layers import Conv2d, GroupNorm, LayerNorm, Linear, RMSNorm, attention


class Scan(nn.Module):
    """A gated linear recurrence over time, step by step."""

    def __init__(self, width=40, depth=2):
        super().__init__()
        self.embed = nn.Embedding(60, width)
        self.given = nn.ModuleList(Linear(width, 2 * width) for _ in range(depth))
        self.out = nn.ModuleList(Linear(width, width) for _ in range(depth))
        self.norm, self.head = RMSNorm(width, 1e-6), Linear(width, 60)

    def forward(self, x):
        x = self.embed(x)
        for given, out in zip(self.given, self.out):
            value, gate = given(x).chunk(2, -1)
            decay, state, states = torch.exp(-F.softplus(gate)), torch.zeros_like(value[:, 0]), []
            for t in range(x.shape[1]):
                state = decay[:, t] * state + (1 - decay[:, t]) * value[:, t]
                states.append(state)
            x = x + out(torch.stack(states, 1))
        return self.head(self.norm(x))


class Outliers(nn.Module):
    """A residual stream of which two dimensions are a hundred times the others, as large language models have it."""

    def __init__(self, width=64, heads=4, depth=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(64, width)
        scale = torch.ones(width)
        scale[[7, 33]] = 100
        self.register_buffer("scale", scale)
        self.norms = nn.ModuleList(RMSNorm(width, 1e-6) for _ in range(2 * depth))
        self.qkv = nn.ModuleList(Linear(width, 3 * width, False) for _ in range(depth))
        self.out = nn.ModuleList(Linear(width, width, False) for _ in range(depth))
        self.up = nn.ModuleList(Linear(width, 128, False) for _ in range(depth))
        self.down = nn.ModuleList(Linear(128, width, False) for _ in range(depth))
        self.norm, self.head = LayerNorm(width), Linear(width, 64, False)

    def forward(self, x):
        x = self.embed(x) * self.scale.to(self.embed.weight.dtype)
        for i, (qkv, out, up, down) in enumerate(zip(self.qkv, self.out, self.up, self.down)):
            batch, length, width = x.shape
            q, k, v = qkv(self.norms[2 * i](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mixed = attention(q, k, v, None, (width // self.heads) ** -0.5)
            x = x + out(mixed.transpose(1, 2).reshape(batch, length, width))
            x = x + down(F.silu(up(self.norms[2 * i + 1](x))))
        return self.head(self.norm(x))


class Sharp(nn.Module):
    """A memory that is read by a softmax of large numbers."""

    def __init__(self, width=48, slots=32):
        super().__init__()
        self.embed = nn.Embedding(40, width)
        self.query, self.keys, self.values = Linear(width, width), Linear(width, slots), Linear(slots, width)
        self.norm, self.head = LayerNorm(width), Linear(width, 6)

    def forward(self, x):
        x = self.query(self.embed(x))
        shares = (30 * self.keys(F.normalize(x, dim=-1))).softmax(-1)
        return self.head(self.norm(x + self.values(shares)).amax(1))


class Deep(nn.Module):
    def __init__(self, width=32, depth=24):
        super().__init__()
        self.stem = Linear(20, width)
        self.layers = nn.Sequential(*(nn.Sequential(LayerNorm(width), Linear(width, width), nn.ELU()) for _ in range(depth)))
        self.head = Linear(width, 8)

    def forward(self, x):
        return self.head(self.layers(self.stem(x)))


class Narrowing(nn.Module):
    """PReLU, strides, dropout, group norms of two channels; two pictures a batch under batch norm."""

    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.PReLU(width), nn.Dropout(0.2),
            Conv2d(width, 2 * width, 3, 2, 1), GroupNorm(width, 2 * width), nn.PReLU(2 * width), nn.AvgPool2d(2))
        self.head = Linear(2 * width * 16, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Pairs(nn.Module):
    """Differences of all pairs of rows: most of what is compared cancels."""

    def __init__(self, width=48):
        super().__init__()
        self.embed, self.first, self.second = nn.Embedding(90, width), Linear(width, width), Linear(width, width)
        self.head = Linear(width, 5)

    def forward(self, x):
        x = torch.tanh(self.first(self.embed(x)))
        apart = (x[:, :, None] - x[:, None, :]).square()
        return self.head(F.gelu(self.second(apart)).mean((1, 2)))


MODELS = {
    "scan": (Scan, training.tokens(6, 20, 60), with_parameters(torch.optim.Adam, lr=3e-3), {"seed": 401}),
    "outliers": (Outliers, training.tokens(6, 24, 64), with_parameters(torch.optim.AdamW, lr=1e-3), {"seed": 402, "steps": 8}),
    "sharp": (Sharp, texts(12, 12, 40, 6), with_parameters(torch.optim.SGD, lr=0.1), {"seed": 403}),
    "deep": (Deep, rows(40, 8, 20), with_parameters(torch.optim.NAdam, lr=1e-3), {"seed": 404}),
    "narrowing": (Narrowing, training.pictures(2, 32), with_parameters(torch.optim.RMSprop, lr=1e-3), {"seed": 405, "steps": 8}),
    "pairs": (Pairs, texts(6, 16, 90, 5), with_parameters(torch.optim.Adagrad, lr=1e-2), {"seed": 406, "micro": 2}),
}
