"""The three models that faults are planted into: modules are defined in the order in which they run.

What a fault switches has a name that begins with `_`: such attributes are not recorded, as the code that a real fault
changes is not.
"""
import torch
from torch import nn

from layers import GELU, LSTM, Conv2d, LayerNorm, Linear, attention

VOCABULARY, LENGTH, WIDTH, HEADS = 64, 48, 128, 4


def angles(length, width, factor=1.0):
    """@return the angles of rotary and position tables, [length, width / 2]."""
    return factor * torch.outer(torch.arange(length).float(), 100.0 ** (-torch.arange(0, width, 2).float() / width))


class Position(nn.Module):
    _first_row = 0

    def __init__(self, length, width):
        super().__init__()
        turn = angles(length + 1, width)
        self.register_buffer("table", torch.cat((turn.sin(), turn.cos()), 1))

    def forward(self, x):
        return x + self.table[self._first_row:self._first_row + x.shape[1]].to(x.dtype)


class Attention(nn.Module):
    _mask_offset = 0  # None: no mask at all
    _swapped = False

    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self._scale = heads, (width // heads) ** -0.5
        self.qkv, self.out = Linear(width, 3 * width), Linear(width, width)
        self.set_tables(length)

    def set_tables(self, length, factor=1.0):
        turn = angles(length, self.out.in_features // self.heads, factor)
        self.register_buffer("cos", turn.cos())
        self.register_buffer("sin", turn.sin())

    def rotated(self, x):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k = self.rotated(q), self.rotated(k)
        if self._swapped:
            q, k = k, q
        mask = None
        if self._mask_offset is not None:
            mask = torch.ones(length, length, dtype=torch.bool).tril(self._mask_offset)
        y = attention(q, k, v, mask, self._scale)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    _detached = False

    def __init__(self, width, heads, length):
        super().__init__()
        self.ln1, self.attn = LayerNorm(width), Attention(width, heads, length)
        self.ln2, self.fc1, self.act, self.drop = LayerNorm(width), Linear(width, 4 * width), GELU(), nn.Dropout(0.1)
        self.fc2 = Linear(4 * width, width)

    def forward(self, x):
        x = (x.detach() if self._detached else x) + self.attn(self.ln1(x))
        return x + self.fc2(self.drop(self.act(self.fc1(self.ln2(x)))))


class Gpt(nn.Module):
    def __init__(self, depth=6, width=WIDTH, heads=HEADS, length=LENGTH):
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, width), Position(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, length) for _ in range(depth)))
        self.head = Linear(width, VOCABULARY)

    def forward(self, x):
        return self.head(self.blocks(self.position(self.embed(x))))


class Stage(nn.Module):
    _detached = False

    def __init__(self, given, made):
        super().__init__()
        self.conv = Conv2d(given, made, 3, stride=1 if given == made else 2, padding=1)
        self.norm, self.act = nn.BatchNorm2d(made), GELU()
        self._residual = given == made

    def forward(self, x):
        y = self.act(self.norm(self.conv(x)))
        return y + (x.detach() if self._detached else x) if self._residual else y


class Conv(nn.Module):
    def __init__(self, sizes=(3, 32, 64, 64, 128)):
        super().__init__()
        self.stages = nn.Sequential(*(Stage(a, b) for a, b in zip(sizes, sizes[1:])))
        self.drop, self.head = nn.Dropout(0.1), Linear(sizes[-1], 10)

    def forward(self, x):
        return self.head(self.drop(self.stages(x).mean((2, 3))))


class Layer(nn.Module):
    _detached = False

    def __init__(self, width):
        super().__init__()
        self.lstm, self.norm, self.drop = LSTM(width, width, batch_first=True), LayerNorm(width), nn.Dropout(0.1)

    def forward(self, x):
        return (x.detach() if self._detached else x) + self.drop(self.norm(self.lstm(x)))


class Lstm(nn.Module):
    def __init__(self, depth=3, width=96):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(depth)))
        self.fc, self.act, self.head = Linear(width, 2 * width), GELU(), Linear(2 * width, VOCABULARY)

    def forward(self, x):
        return self.head(self.act(self.fc(self.layers(self.embed(x)))))
