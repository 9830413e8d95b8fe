"""A third set that no rule of convtrace-diff was made with: written and judged when the second had shown what it had to show."""
import torch
import torch.nn.functional as F
from torch import nn

import training
from held_out import with_parameters
from held_out_2 import rows
from layers import Conv2d, LayerNorm, Linear, RMSNorm


class Stack(nn.Module):
    """Convolutions, ReLU and maxima over windows, as VGG has them."""

    def __init__(self, width=24):
        super().__init__()
        layers, last = [], 3
        for i, out in enumerate((width, width, 2 * width, 2 * width)):
            layers += [Conv2d(last, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if i % 2 else []
            last = out
        self.features, self.hidden, self.head = nn.Sequential(*layers), Linear(last * 64, 96), Linear(96, 10)

    def forward(self, x):
        return self.head(F.relu(self.hidden(self.features(x).flatten(1))))


class Biased(nn.Module):
    """Attention with a bias by distance (ALiBi), norms behind the sums, and a squared ReLU."""

    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = Linear(width, 3 * width, False), Linear(width, width, False)
        self.up, self.down = Linear(width, 4 * width, False), Linear(4 * width, width, False)
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)
        places = torch.arange(length)
        slopes = 2.0 ** -torch.arange(1, heads + 1).view(-1, 1, 1)
        bias = (places.view(1, 1, -1) - places.view(1, -1, 1)) * slopes
        self.register_buffer("bias", bias.masked_fill(bias > 0, float("-inf")))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, self.bias.to(q.dtype))
        x = self.norm1(x + self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return self.norm2(x + self.down(F.relu(self.up(x)).square()))


class Decoder(nn.Module):
    def __init__(self, width=64, heads=4, length=28, depth=4):
        super().__init__()
        self.embed = nn.Embedding(70, width)
        self.blocks = nn.Sequential(*(Biased(width, heads, length) for _ in range(depth)))
        self.head = Linear(width, 70)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))


class Both(nn.Module):
    """An LSTM in both directions, and the maximum over time."""

    def __init__(self, width=48):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(80, width), nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
        self.hidden, self.head = Linear(2 * width, 64), Linear(64, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.hidden(self.rnn(self.embed(x))[0].amax(1))))


class Mixture(nn.Module):
    """Experts of which all compute, weighed by a router."""

    def __init__(self, width=48, experts=4):
        super().__init__()
        self.embed, self.norm = nn.Embedding(64, width), RMSNorm(width, 1e-6)
        self.router = Linear(width, experts, False)
        self.experts = nn.ModuleList(nn.Sequential(Linear(width, 96), nn.GELU(), Linear(96, width)) for _ in range(experts))
        self.head = Linear(width, 64)

    def forward(self, x):
        x = self.embed(x)
        y = self.norm(x)
        shares = self.router(y).softmax(-1)
        return self.head(x + sum(shares[..., i:i + 1] * expert(y) for i, expert in enumerate(self.experts)))


class Twins(nn.Module):
    """Two views of a picture through one network, and a contrastive loss by their cosines: 10 classes are the rows of the batch."""

    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, width, 4, 4))
        self.body = nn.Sequential(Conv2d(width, width, 3, padding=1), nn.InstanceNorm2d(width, affine=True), nn.LeakyReLU(0.1))
        self.project = Linear(width * 16, 40)

    def one(self, x):
        return F.normalize(self.project(self.body(self.stem(x)).flatten(1)), dim=-1)

    def forward(self, x):
        return self.one(x) @ self.one(x.flip(-1)).t() / 0.1


class Regions(nn.Module):
    """Depthwise convolutions, squeeze and excitation, hard swish, average pooling."""

    def __init__(self, width=32, depth=3):
        super().__init__()
        self.stem = Conv2d(3, width, 3, 2, 1)
        self.deep = nn.ModuleList(nn.Conv2d(width, width, 5, padding=2, groups=width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(depth))
        self.squeeze = nn.ModuleList(nn.Sequential(Linear(width, 8), nn.ReLU(), Linear(8, width), nn.Hardsigmoid()) for _ in range(depth))
        self.mix = nn.ModuleList(Conv2d(width, width, 1) for _ in range(depth))
        self.head = Linear(width, 10)

    def forward(self, x):
        x = F.hardswish(self.stem(x))
        for deep, norm, squeeze, mix in zip(self.deep, self.norms, self.squeeze, self.mix):
            y = F.hardswish(norm(deep(x)))
            x = x + mix(y * squeeze(y.mean((2, 3)))[:, :, None, None])
        return self.head(x.mean((2, 3)))


def texts(batch, length, vocabulary, classes):
    def draw(generator):
        return torch.randint(vocabulary, (batch, length), generator=generator), torch.randint(classes, (batch,), generator=generator)

    return draw


def views(batch, size):
    def draw(generator):
        return torch.randn(batch, 3, size, size, generator=generator), torch.arange(batch)

    return draw


MODELS = {
    "stack": (Stack, training.pictures(12, 32), with_parameters(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=5e-4), {"seed": 301}),
    "decoder": (Decoder, training.tokens(5, 28, 70), with_parameters(torch.optim.AdamW, lr=3e-3, weight_decay=0.1), {"seed": 302, "steps": 10}),
    "both": (Both, texts(10, 30, 80, 4), with_parameters(torch.optim.RMSprop, lr=1e-3, momentum=0.9), {"seed": 303}),
    "mixture": (Mixture, training.tokens(8, 16, 64), with_parameters(torch.optim.Adam, lr=5e-3), {"seed": 304, "micro": 3}),
    "twins": (Twins, views(10, 16), with_parameters(torch.optim.RAdam, lr=2e-3), {"seed": 305, "steps": 8}),
    "regions": (Regions, rows(6, 10, 3, 32, 32), with_parameters(training.Lion, lr=3e-4), {"seed": 306}),
}
