"""Common parts of this folder's programs: a case, small models, their data, and the plain loop."""
import dataclasses
import typing

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, CLASSES, BATCH, STEPS = 32, 6, 16, 10


@dataclasses.dataclass(frozen=True)
class Case:
    expected: str               # id of the finding
    known: str                  # where the fault is known from
    program: typing.Callable    # of one flag: faulty or corrected
    ranks: int = 1              # processes, each with RANK and WORLD_SIZE
    hint: bool = False          # correct programs may look alike, so that it is no more than a hint


class Block(nn.Module):
    """A residual block as in transformers, without the attention."""

    def __init__(self, width=WIDTH, drop=0.0, inner=0.0):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.act = nn.Sequential(nn.GELU(), nn.Dropout(inner)) if inner else nn.GELU()
        self.down, self.drop = nn.Linear(2 * width, width), nn.Dropout(drop)

    def forward(self, x):
        return x + self.drop(self.down(self.act(self.up(self.norm(x)))))


class Classifier(nn.Module):
    """A stem, blocks and a head over vectors."""

    def __init__(self, width=WIDTH, depth=2, drop=0.0):
        super().__init__()
        self.stem = nn.Linear(WIDTH, width)
        self.blocks = nn.Sequential(*(Block(width, drop) for _ in range(depth)))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


class Conv(nn.Module):
    """Pictures to classes, with batch norms and a dropout."""

    def __init__(self, width=12):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(2 * width, CLASSES)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        return self.head(self.drop(F.relu(self.norm2(self.conv2(x))).mean((2, 3))))


class Tagger(nn.Module):
    """Tokens to a class each; token 0 is padding."""

    def __init__(self, vocabulary=40, width=WIDTH):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.blocks, self.head = nn.Sequential(Block(width), Block(width)), nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))


def vectors(count=BATCH * STEPS, seed=1):
    """A data set: the class of a vector is the largest of its first elements."""
    x = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :CLASSES].argmax(1))


def pictures(count=BATCH * STEPS, size=12, seed=2):
    """A data set: each class has a pattern under noise."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(CLASSES, 3, size, size, generator=generator)
    y = torch.randint(CLASSES, (count,), generator=generator)
    return TensorDataset(patterns[y] + torch.randn(count, 3, size, size, generator=generator), y)


def load(data, batch=BATCH, shuffle=True, **options):
    return DataLoader(data, batch_size=batch, shuffle=shuffle, drop_last=True, **options)


def learn(model, optimizer, x, y, criterion=F.cross_entropy):
    """One update."""
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def fit(model, optimizer, loader=None, criterion=F.cross_entropy):
    """One epoch."""
    for x, y in loader or load(vectors()):
        learn(model, optimizer, x, y, criterion)


def sgd(model, lr=0.05):
    return torch.optim.SGD(model.parameters(), lr=lr)


def adamw(model, lr=1e-3):
    return torch.optim.AdamW(model.parameters(), lr=lr)
