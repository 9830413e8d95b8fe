"""A second set that no rule of convtrace-diff was made with: other architectures, optimizers and data than held_out.py."""
import torch
import torch.nn.functional as F
from torch import nn

import training
from held_out import with_parameters
from layers import Conv2d, LayerNorm, Linear, attention


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.out = LayerNorm(width), Linear(width, 3 * width), Linear(width, width)
        self.norm2, self.up, self.down = LayerNorm(width), Linear(width, 2 * width), Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(attention(q, k, v, None, (width // self.heads) ** -0.5).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class Vision(nn.Module):
    """Patches, a class token and learned positions."""

    def __init__(self, width=96, depth=3):
        super().__init__()
        self.patches = Conv2d(3, width, 8, stride=8)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 17, width))
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(depth)))
        self.norm, self.head = LayerNorm(width), Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Recommender(nn.Module):
    """Bags of embeddings, their scalar products, and a network on top."""

    def __init__(self, tables=6, rows=200, width=32):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.mix = nn.Sequential(Linear(tables * (tables - 1) // 2 + tables * width, 128), nn.ReLU(), Linear(128, 64), nn.Sigmoid())
        self.head = Linear(64, 2)

    def forward(self, x):
        looked_up = torch.stack([bag(x[:, i]) for i, bag in enumerate(self.bags)], 1)
        products = looked_up @ looked_up.transpose(1, 2)
        rows, columns = torch.triu_indices(len(self.bags), len(self.bags), 1)
        return self.head(self.mix(torch.cat((products[:, rows, columns], looked_up.flatten(1)), 1)))


class Graph(nn.Module):
    """Messages along edges, added up at their ends."""

    def __init__(self, nodes=300, edges=2000, width=64, depth=3):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.register_buffer("ends", torch.randint(nodes, (2, edges), generator=generator))
        self.embed = Linear(16, width)
        self.messages = nn.ModuleList(Linear(2 * width, width) for _ in range(depth))
        self.norms = nn.ModuleList(LayerNorm(width) for _ in range(depth))
        self.head = Linear(width, 7)

    def forward(self, x):
        x = self.embed(x)
        for message, norm in zip(self.messages, self.norms):
            sent = F.leaky_relu(message(torch.cat((x[self.ends[0]], x[self.ends[1]]), -1)))
            x = norm(x + torch.zeros_like(x).index_add(0, self.ends[1], sent.to(x.dtype)))
        return self.head(x)


class Mixer(nn.Module):
    def __init__(self, length=24, width=64, depth=4):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.norms = nn.ModuleList(LayerNorm(width) for _ in range(2 * depth))
        self.along = nn.ModuleList(nn.Sequential(Linear(length, 48), nn.GELU(), Linear(48, length)) for _ in range(depth))
        self.across = nn.ModuleList(nn.Sequential(Linear(width, 128), nn.Tanh(), Linear(128, width)) for _ in range(depth))
        self.head = Linear(width, 50)

    def forward(self, x):
        x = self.embed(x)
        for i, (along, across) in enumerate(zip(self.along, self.across)):
            x = x + along(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + across(self.norms[2 * i + 1](x))
        return self.head(x)


class Wave(nn.Module):
    """Dilated convolutions over time, with normalised weights and gates."""

    def __init__(self, width=32, depth=4):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Conv1d(width, 2 * width, 3, padding=2 ** i, dilation=2 ** i)) for i in range(depth))
        self.norm, self.head = nn.BatchNorm1d(width), Linear(width, 5)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            kept, gate = layer(x).chunk(2, 1)
            x = x + torch.tanh(kept) * torch.sigmoid(gate)
        return self.head(self.norm(x).mean(2))


class Denoiser(nn.Module):
    """An autoencoder whose bottleneck is normalised to length one."""

    def __init__(self, width=24):
        super().__init__()
        self.encode = nn.Sequential(Conv2d(3, width, 4, 2, 1), nn.SiLU(), Conv2d(width, 2 * width, 4, 2, 1), nn.SiLU())
        self.decode = nn.Sequential(nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(width, 4, 4, 2, 1))

    def forward(self, x):
        return self.decode(F.normalize(self.encode(x), dim=1))


def rows(size, classes, *shape):
    def draw(generator):
        return torch.randn(size, *shape, generator=generator), torch.randint(classes, (size,), generator=generator)

    return draw


def bags(size, tables=6, length=5):
    def draw(generator):
        return torch.randint(200, (size, tables, length), generator=generator), torch.randint(2, (size,), generator=generator)

    return draw


MODELS = {
    "vision": (Vision, training.pictures(8, 32), with_parameters(torch.optim.SGD, lr=0.02, momentum=0.9, nesterov=True), {"seed": 201}),
    "recommender": (Recommender, bags(64), with_parameters(torch.optim.Adagrad, lr=0.02), {"seed": 202, "steps": 10}),
    "graph": (Graph, rows(300, 7, 16), with_parameters(torch.optim.Adam, lr=2e-3, amsgrad=True), {"seed": 203}),
    "mixer": (Mixer, training.tokens(6, 24, 50), with_parameters(torch.optim.Adafactor, lr=1e-2), {"seed": 204}),
    "wave": (Wave, rows(8, 5, 1, 256), with_parameters(torch.optim.NAdam, lr=2e-3), {"seed": 205, "micro": 2}),
    "denoiser": (Denoiser, training.pictures(4, 32, 4, dense=True), with_parameters(torch.optim.Adamax, lr=2e-3), {"seed": 206, "steps": 8}),
}
