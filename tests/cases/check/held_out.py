"""Six further faults, kept apart: rules of convtrace check are judged on these, and never set by them."""
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import IterableDataset

from parts import BATCH, CLASSES, STEPS, WIDTH, Block, Case, Classifier, Conv, adamw, learn, load, pictures, sgd, vectors
from ranks import group, parallel


class Offloaded:
    """Gradients pass through memory of the host; the copy into it stops when a flag is not set back."""

    def __init__(self, parameter, faulty):
        self.buffer, self.busy, self.faulty, self.copies = torch.zeros_like(parameter), False, faulty, 0
        parameter.register_post_accumulate_grad_hook(self)

    @torch.no_grad()
    def __call__(self, parameter):
        if not self.busy:
            self.buffer.copy_(parameter.grad)
            self.copies += 1
            self.busy = self.faulty and self.copies == 5
        parameter.grad.copy_(self.buffer)


def busy_buffer(faulty):
    """From the sixth step on, one layer gets the fifth step's gradient."""
    model = Classifier()
    Offloaded(model.blocks[1].up.weight, faulty)
    optimizer = adamw(model)
    for x, y in load(vectors()):
        learn(model, optimizer, x, y)


class Mixture(nn.Module):
    """Takes one of four experts for each row; the choice is hard, with or without the gradient of the soft one."""

    def __init__(self, faulty):
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, 4), nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.faulty = faulty

    def forward(self, x):
        soft = self.router(x).softmax(1)
        choice = F.one_hot(soft.argmax(1), 4).to(x.dtype)
        if not self.faulty:
            choice = choice + soft - soft.detach()
        return x + sum(choice[:, [i]] * torch.relu(expert(x)) for i, expert in enumerate(self.experts))


def hard_router(faulty):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Mixture(faulty), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))
    optimizer = sgd(model)
    for x, y in load(vectors()):
        learn(model, optimizer, x, y)


class ScaledBlock(Block):
    """Has a scale for each channel, which is no weight and no bias by its name."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return super().forward(x) * self.gain


def groups_by_name(faulty):
    """The groups of the optimizer are made by names, and one kind of name is in no group."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), ScaledBlock(), ScaledBlock(), nn.Linear(WIDTH, CLASSES))
    named = dict(model.named_parameters())
    decayed = [p for name, p in named.items() if name.endswith("weight") and p.dim() > 1]
    plain = [p for name, p in named.items() if name.endswith("bias") or name.endswith("weight") and p.dim() == 1]
    if not faulty:
        plain += [p for name, p in named.items() if name.endswith("gain")]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-3)
    for x, y in load(vectors()):
        learn(model, optimizer, x, y)


def half_restored(faulty):
    """A sample is taken in evaluation mode; behind it the flag of the root is set, not those of its modules."""
    model, shown = Conv(), pictures(16, seed=8).tensors[0]
    optimizer = adamw(model)
    for step, (x, y) in enumerate(load(pictures())):
        learn(model, optimizer, x, y)
        if step % 3 == 2:
            model.eval()
            with torch.no_grad():
                model(shown).argmax(1)
            if faulty:
                model.training = True
            else:
                model.train()


def zero_each_epoch(faulty):
    """Gradients are set to zero as an epoch begins; each of its batches makes an update."""
    model = Classifier()
    optimizer = sgd(model, 0.02)
    loader = load(vectors(BATCH * 5))
    for _ in range(2):
        optimizer.zero_grad()
        for x, y in loader:
            if not faulty:
                optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


class Stream(IterableDataset):
    """Samples that are made as they are read: all of them, or those of one rank."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def __iter__(self):
        generator = torch.Generator().manual_seed(17)
        for number in range(BATCH * STEPS * 2):
            x = torch.randn(WIDTH, generator=generator)
            if number % self.size == self.rank:
                yield x, x[:CLASSES].argmax()


def unsplit_stream(faulty):
    """Each rank reads the whole stream."""
    with group() as rank:
        model = parallel(Classifier())
        optimizer = sgd(model, 0.1)
        stream = Stream(0, 1) if faulty else Stream(rank, int(os.environ["WORLD_SIZE"]))
        for step, (x, y) in enumerate(load(stream, shuffle=None)):
            if step < STEPS:
                learn(model, optimizer, x, y)


HELD_OUT = {
    "busy-buffer": Case("stale-gradient", "made up", busy_buffer),
    "hard-router": Case("no-gradient", "made up", hard_router),
    "groups-by-name": Case("no-motion", "mace#1529", groups_by_name),
    "half-restored": Case("mode", "made up", half_restored),
    "zero-each-epoch": Case("gradients-add-up", "pytorch#47175", zero_each_epoch),
    "unsplit-stream": Case("same-data", "made up", unsplit_stream, 2),
}
