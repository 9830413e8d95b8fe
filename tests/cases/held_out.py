"""Other models, sizes, seeds and optimizers: rules of convtrace-diff are judged on these, and never set by them."""
import functools

import torch
import torch.nn.functional as F
from torch import nn

import training
from layers import GRU, Conv2d, GroupNorm, LayerNorm, Linear, RMSNorm, attention
from models import Gpt


class GroupedAttention(nn.Module):
    """Queries of two heads share keys and values."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q, self.kv, self.out = Linear(width, width, False), Linear(width, width, False), Linear(width, width, False)

    def forward(self, x):
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, self.heads // 2, self.size).permute(2, 0, 3, 1, 4).repeat_interleave(2, 2)
        return self.out(attention(q, k, v, None, self.size ** -0.5).transpose(1, 2).reshape(batch, length, width))


class GatedBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attn = RMSNorm(width, 1e-6), GroupedAttention(width, heads)
        self.norm2, self.gate, self.up = RMSNorm(width, 1e-6), Linear(width, 3 * width, False), Linear(width, 3 * width, False)
        self.down = Linear(3 * width, width, False)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Encoder(nn.Module):
    def __init__(self, width=160, heads=8, depth=3):
        super().__init__()
        self.embed = nn.Embedding(96, width)
        self.blocks = nn.Sequential(*(GatedBlock(width, heads) for _ in range(depth)))
        self.norm, self.head = RMSNorm(width, 1e-6), Linear(width, 96, False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x))))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.conv1 = GroupNorm(8, width), Conv2d(width, width, 3, padding=1)
        self.norm2, self.conv2 = GroupNorm(8, width), Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


class Resnet(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.stem = Conv2d(3, width, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(*(Residual(width) for _ in range(depth)))
        self.norm, self.head = LayerNorm(width), Linear(width, 10)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x)).mean((2, 3))))


class Unet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem, self.above = Conv2d(3, width, 3, padding=1), Residual(width)
        self.down, self.below = Conv2d(width, 2 * width, 3, stride=2, padding=1), Residual(2 * width)
        self.up, self.joined = nn.ConvTranspose2d(2 * width, width, 2, stride=2), Conv2d(2 * width, width, 3, padding=1)
        self.last, self.head = Residual(width), Conv2d(width, 10, 1)

    def forward(self, x):
        above = self.above(self.stem(x))
        up = self.up(self.below(self.down(above)))
        return self.head(self.last(self.joined(torch.cat((above, up), 1))))


class Gru(nn.Module):
    def __init__(self, width=112, depth=2):
        super().__init__()
        self.embed = nn.Embedding(64, width)
        self.layers = nn.Sequential(*(GRU(width, width, batch_first=True) for _ in range(depth)))
        self.norm, self.head = LayerNorm(width), Linear(width, 64)

    def forward(self, x):
        return self.head(self.norm(self.layers(self.embed(x))))


def tied():
    model = Gpt(depth=2, width=192, heads=6, length=32)
    nn.init.normal_(model.embed.weight, std=0.05)
    model.head.weight = model.embed.weight
    return model


def with_parameters(kind, **options):
    return lambda model: kind(model.parameters(), **options)


# model: (build, data, optimizer, options of Training), rounding variants
MODELS = {
    "encoder": (Encoder, training.tokens(6, 40, 96), with_parameters(torch.optim.SGD, lr=0.05, momentum=0.9), {"seed": 101}),
    "resnet": (Resnet, training.pictures(12, 32), with_parameters(training.Lion), {"seed": 102}),
    "gru": (Gru, training.tokens(8, 20, 64), with_parameters(torch.optim.RMSprop, lr=5e-4), {"seed": 103, "steps": 8}),
    "tied": (tied, training.tokens(4, 32, 64), with_parameters(torch.optim.Adam, lr=2e-3), {"seed": 104, "micro": 2}),
    "unet": (Unet, training.pictures(4, 24, dense=True), functools.partial(training.adamw), {"seed": 105, "steps": 16}),
}
