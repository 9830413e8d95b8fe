"""A sixth set: parameters that a module with children owns."""
import torch
import torch.nn.functional as F
from torch import nn

import training
from held_out import with_parameters
from layers import Conv2d, LayerNorm, Linear, RMSNorm, attention, product


class Selective(nn.Module):
    """A selective state space: decays, skips and biases of steps beside the projections."""

    def __init__(self, width=40, states=8):
        super().__init__()
        self.width, self.states = width, states
        self.given, self.chosen = Linear(width, 2 * width, False), Linear(width, 2 * states + width, False)
        self.taken = Linear(width, width, False)
        self.log_decay = nn.Parameter(torch.log(torch.arange(1.0, states + 1)).repeat(width, 1))
        self.skip, self.step_bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.full((width,), -2.0))

    def forward(self, x):
        x, gate = self.given(x).chunk(2, -1)
        x = F.silu(x)
        step, keys, queries = self.chosen(x).split((self.width, self.states, self.states), -1)
        step = F.softplus(step + self.step_bias)[..., None]
        decay = torch.exp(-step * torch.exp(self.log_decay))
        state, seen = torch.zeros_like(decay[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + step[:, t] * keys[:, t, None] * x[:, t, :, None]
            seen.append((state * queries[:, t, None]).sum(-1))
        return self.taken((torch.stack(seen, 1) + self.skip * x).to(gate.dtype) * F.silu(gate))


class Spaces(nn.Module):
    def __init__(self, width=40, depth=3, vocabulary=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(depth))
        self.mixers = nn.ModuleList(Selective(width) for _ in range(depth))
        self.head = Linear(width, vocabulary)

    def forward(self, x):
        x = self.embed(x)
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x))
        return self.head(x)


class Adapted(nn.Module):
    """A frozen product and a trained one of low rank, as LoRA has."""

    def __init__(self, width, out, rank=4):
        super().__init__()
        self.base = Linear(width, out)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(rank, width) * width ** -0.5), nn.Parameter(torch.randn(out, rank) * 0.02)

    def forward(self, x):
        return self.base(x) + product(product(x, self.down.to(x.dtype)), self.up.to(x.dtype))


class Tuned(nn.Module):
    def __init__(self, width=48, heads=4, vocabulary=72):
        super().__init__()
        self.heads, self.embed, self.norm = heads, nn.Embedding(vocabulary, width), LayerNorm(width)
        self.parts, self.out = Adapted(width, 3 * width), Adapted(width, width)
        self.wide, self.narrow = Adapted(width, 128), Adapted(128, width)
        self.head = Linear(width, vocabulary)

    def forward(self, x):
        x = self.embed(x)
        parts = self.parts(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(attention(*parts, None, parts.shape[-1] ** -0.5).transpose(1, 2).flatten(2))
        return self.head(x + self.narrow(F.gelu(self.wide(x))))


class Scaled(nn.Module):
    """A convolution by depth and two products, scaled by channel: a block of ConvNeXt."""

    def __init__(self, width):
        super().__init__()
        self.near, self.norm = nn.Conv2d(width, width, 5, padding=2, groups=width), LayerNorm(width)
        self.wide, self.narrow = Linear(width, 4 * width), Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        made = self.norm(self.near(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.narrow(F.gelu(self.wide(made)))).permute(0, 3, 1, 2)


class Pictures(nn.Module):
    """Scaled blocks, then attention over patches with learned places, a class token and a temperature for each head."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.stem = heads, Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(Scaled(width), Scaled(width))
        self.places, self.token = nn.Parameter(torch.randn(65, width) * 0.1), nn.Parameter(torch.randn(1, 1, width))
        self.temperature = nn.Parameter(torch.zeros(heads, 1, 1))
        self.parts, self.norm, self.head = Linear(width, 3 * width), LayerNorm(width), Linear(width, 10)

    def forward(self, x):
        x = self.blocks(self.stem(x)).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1).to(x.dtype), x), 1) + self.places.to(x.dtype)
        q, k, v = self.parts(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q = F.normalize(q, dim=-1) * torch.exp(self.temperature.to(q.dtype)) * 8
        x = x + attention(q, F.normalize(k, dim=-1), v, None, 1.0).transpose(1, 2).flatten(2)
        return self.head(self.norm(x)[:, 0])


class Experts(nn.Module):
    """Experts whose weights are one tensor each for all, weighed by a router with a bias of its own."""

    def __init__(self, width=40, experts=6, hidden=64, vocabulary=60):
        super().__init__()
        self.embed, self.router = nn.Embedding(vocabulary, width), Linear(width, experts, False)
        self.balance = nn.Parameter(torch.zeros(experts))
        self.wide = nn.Parameter(torch.randn(experts, width, hidden) * width ** -0.5)
        self.narrow = nn.Parameter(torch.randn(experts, hidden, width) * hidden ** -0.5)
        self.norm, self.head = RMSNorm(width), Linear(width, vocabulary)

    def forward(self, x):
        x = self.embed(x)
        share = torch.softmax(self.router(x) + self.balance, -1).to(x.dtype)
        made = torch.einsum("btw,ewh->bteh", x, self.wide.to(x.dtype))
        made = torch.einsum("bteh,ehw->btew", F.silu(made), self.narrow.to(x.dtype))
        return self.head(self.norm(x + (share[..., None] * made).sum(2)))


MODELS = {
    "spaces": (Spaces, training.tokens(6, 24, 64), with_parameters(torch.optim.AdamW, lr=2e-3), {"seed": 601}),
    "tuned": (Tuned, training.tokens(8, 20, 72), with_parameters(torch.optim.SGD, lr=0.1, momentum=0.9), {"seed": 602}),
    "scaled": (Pictures, training.pictures(10, 32), with_parameters(torch.optim.AdamW, lr=1e-3), {"seed": 603}),
    "experts": (Experts, training.tokens(6, 16, 60), with_parameters(torch.optim.Adam, lr=1e-3), {"seed": 604}),
}
