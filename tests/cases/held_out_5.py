"""A fifth set: torch's own transformer and LSTM, weights made by weights, transforms, routing, fixed points, point clouds."""
import torch
import torch.nn.functional as F
from torch import nn

import training
from held_out import with_parameters
from held_out_2 import rows
from held_out_3 import texts
from layers import Conv2d, LayerNorm, Linear, RMSNorm, attention, product


class Translator(nn.Module):
    """torch.nn.Transformer: encoder, decoder, dropout, ReLU, norms first."""

    def __init__(self, width=48, vocabulary=60):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.body = nn.Transformer(width, 4, 2, 2, 96, 0.1, batch_first=True, norm_first=True)
        self.head = Linear(width, vocabulary)

    def forward(self, x):
        given = self.embed(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=given.dtype)
        return self.head(self.body(given.flip(1), given, tgt_mask=mask, tgt_is_causal=True))


class Projected(nn.Module):
    """torch.nn.LSTM of two layers, in both directions, projected, dropout between."""

    def __init__(self, width=56):
        super().__init__()
        self.embed = nn.Embedding(70, width)
        self.lstm = nn.LSTM(width, 64, 2, batch_first=True, dropout=0.2, bidirectional=True, proj_size=24)
        self.norm, self.head = LayerNorm(48), Linear(48, 7)

    def forward(self, x):
        return self.head(self.norm(self.lstm(self.embed(x))[0]).mean(1))


class Hyper(nn.Module):
    """A network whose weights another one makes of a code for each layer."""

    def __init__(self, width=40, depth=3):
        super().__init__()
        self.width, self.stem = width, Linear(24, width)
        self.codes = nn.Parameter(torch.randn(depth, 12))
        self.made = nn.Sequential(Linear(12, 48), nn.SiLU(), Linear(48, width * width))
        self.head = Linear(width, 9)

    def forward(self, x):
        x = self.stem(x)
        for code in self.codes:
            weight = self.made(code).view(self.width, self.width) * self.width ** -0.5
            x = x + torch.tanh(product(x, weight.to(x.dtype)))
        return self.head(x)


class Fourier(nn.Module):
    """Mixes positions by a transform of both dimensions, as FNet does."""

    def __init__(self, width=64, depth=3):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.norms = nn.ModuleList(LayerNorm(width) for _ in range(2 * depth))
        self.up = nn.ModuleList(Linear(width, 128) for _ in range(depth))
        self.down = nn.ModuleList(Linear(128, width) for _ in range(depth))
        self.head = Linear(width, 50)

    def forward(self, x):
        x = self.embed(x)
        for i, (up, down) in enumerate(zip(self.up, self.down)):
            mixed = torch.fft.fft2(x.float(), norm="ortho").real.to(x.dtype)
            x = self.norms[2 * i](x + mixed)
            x = self.norms[2 * i + 1](x + down(F.gelu(up(x), approximate="tanh")))
        return self.head(x)


class Points(nn.Module):
    """A cloud of points: the same layers for each, and the largest of every feature."""

    def __init__(self, width=64):
        super().__init__()
        self.first, self.first_norm = Linear(6, width), nn.BatchNorm1d(width)
        self.second, self.second_norm = Linear(width, 2 * width), nn.BatchNorm1d(2 * width)
        self.head = nn.Sequential(Linear(2 * width, width), nn.LeakyReLU(0.2), nn.Dropout(0.3), Linear(width, 8))

    def forward(self, x):
        batch, count, _ = x.shape
        x = F.relu(self.first_norm(self.first(x.flatten(0, 1))))
        x = self.second_norm(self.second(x)).view(batch, count, -1)
        return self.head(x.amax(1))


class Windows(nn.Module):
    """Attention in shifted windows, a bias by relative position, scaled branches that are dropped at random."""

    def __init__(self, width=48, heads=4, window=4, depth=4):
        super().__init__()
        self.heads, self.window = heads, window
        self.patch = Conv2d(3, width, 2, 2)
        self.norms = nn.ModuleList(LayerNorm(width) for _ in range(depth))
        self.qkv = nn.ModuleList(Linear(width, 3 * width) for _ in range(depth))
        self.out = nn.ModuleList(Linear(width, width) for _ in range(depth))
        self.bias = nn.Parameter(torch.randn(depth, heads, (2 * window - 1) ** 2) * 0.02)
        self.scales = nn.Parameter(torch.full((depth, width), 0.1))
        at = torch.cartesian_prod(torch.arange(window), torch.arange(window))
        apart = at[:, None] - at[None] + window - 1
        self.register_buffer("index", apart[..., 0] * (2 * window - 1) + apart[..., 1])
        self.head = Linear(width, 10)

    def mix(self, i, x):
        batch, side, _, width = x.shape
        window, count = self.window, side // self.window
        x = self.norms[i](x.roll((i % 2 * 2, i % 2 * 2), (1, 2)))
        x = x.view(batch, count, window, count, window, width).transpose(2, 3).reshape(-1, window * window, width)
        q, k, v = self.qkv[i](x).view(x.shape[0], x.shape[1], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5 + self.bias[i][:, self.index].to(q.dtype)
        x = self.out[i]((scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(x.shape))
        x = x.view(batch, count, count, window, window, width).transpose(2, 3).reshape(batch, side, side, width)
        return x.roll((-(i % 2) * 2, -(i % 2) * 2), (1, 2))

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        for i in range(len(self.norms)):
            kept = (torch.rand(x.shape[0], 1, 1, 1) > 0.1).to(x.dtype)
            x = x + self.mix(i, x) * self.scales[i].to(x.dtype) * kept
        return self.head(x.mean((1, 2)))


class Sampled(nn.Module):
    """An autoencoder of tokens, by way of random numbers with a mean and a deviation."""

    def __init__(self, width=44, vocabulary=48):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.inner = nn.Sequential(Linear(width, 2 * width), nn.Mish(), Linear(2 * width, 2 * 16))
        self.outer = nn.Sequential(Linear(16, 2 * width), nn.Softplus(), RMSNorm(2 * width, 1e-6), Linear(2 * width, vocabulary))

    def forward(self, x):
        mean, log_scale = self.inner(self.embed(x)).chunk(2, -1)
        return self.outer(mean + torch.exp(0.5 * log_scale) * torch.randn_like(mean))


class Fixed(nn.Module):
    """One layer that is run until it hardly changes what it is given."""

    def __init__(self, width=48, rounds=14):
        super().__init__()
        self.rounds, self.given, self.own = rounds, Linear(30, width), Linear(width, width, False)
        nn.init.orthogonal_(self.own.weight, 0.7)
        self.mix, self.norm, self.head = Linear(width, width), LayerNorm(width), Linear(width, 6)

    def forward(self, x):
        given = self.given(x)
        state = torch.zeros_like(given)
        for _ in range(self.rounds):
            state = torch.tanh(self.own(state) + given)
        seen = attention(state[None, None], self.mix(state)[None, None], state[None, None], None, 48 ** -0.5)[0, 0]
        return self.head(self.norm(state + seen))


MODELS = {
    "translator": (Translator, training.tokens(6, 18, 60), with_parameters(torch.optim.Adam, lr=2e-3, betas=(0.9, 0.98)), {"seed": 501}),
    "projected": (Projected, texts(10, 22, 70, 7), with_parameters(torch.optim.ASGD, lr=0.05), {"seed": 502, "steps": 8}),
    "hyper": (Hyper, rows(36, 9, 24), with_parameters(torch.optim.AdamW, lr=2e-3, amsgrad=True), {"seed": 503}),
    "fourier": (Fourier, training.tokens(6, 16, 50), with_parameters(torch.optim.RAdam, lr=2e-3), {"seed": 504, "micro": 2}),
    "points": (Points, rows(10, 8, 40, 6), with_parameters(torch.optim.Adadelta, lr=1.0), {"seed": 505, "steps": 8}),
    "windows": (Windows, training.pictures(6, 32), with_parameters(torch.optim.NAdam, lr=1e-3), {"seed": 506}),
    "sampled": (Sampled, training.tokens(8, 20, 48), with_parameters(torch.optim.Rprop, lr=1e-3), {"seed": 507}),
    "fixed": (Fixed, rows(32, 6, 30), with_parameters(torch.optim.SGD, lr=0.1, momentum=0.8, dampening=0.1), {"seed": 508, "steps": 10}),
}
