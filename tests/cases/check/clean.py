#!/usr/bin/env python3
"""Clean programs: right, though they look like trouble. `convtrace check` has to find nothing in their traces.

usage: clean.py [NAME]
Without a name it lists them. Each program is a function without arguments that trains for about ten steps, and says which
checks it could fool and why it is right. The other parts are in clean_2.py, clean_3.py, clean_4.py and repeated_gradients.py; CLEAN has all of them.
"""
import functools
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from clean_2 import CLEAN_2, mlp, pictures, rows, texts, update
from clean_3 import CLEAN_3
from clean_4 import CLEAN_4
from repeated_gradients import REPEATED


class Block(nn.Module):
    """A transformer block whose keys have a bias: softmax ignores it, so that its gradient is zero except for rounding."""

    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.ln1, self.ln2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(dropout)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.ln1(x)
        q, k, v = (part(y).unflatten(2, (2, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        score = (q @ k.transpose(2, 3)) / q.shape[3] ** 0.5
        score = score.masked_fill(torch.ones_like(score[0, 0], dtype=torch.bool).triu(1), -torch.inf)
        x = x + self.drop(self.out((score.softmax(3) @ v).transpose(1, 2).flatten(2)))
        return x + self.drop(self.down(functional.gelu(self.up(self.ln2(x)))))


class Gpt(nn.Module):
    def __init__(self, words=32, width=16, depth=2, dropout=0.0):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(16, width)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.1)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, text):
        x = self.words(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def text_loss(logits, text, **options):
    return functional.cross_entropy(logits.flatten(0, 1), text.flatten(), **options)


def plain():
    """Fools nothing: the usual loop."""
    model = mlp(8, 32, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))


def convolutions():
    """Fools: same input other output, module left in eval mode, no gradient. Batch norm changes between validations of one
    batch; biases of convolutions in front of it have no gradient but rounding."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    held = list(pictures(2))
    for step, (x, label) in enumerate(pictures(12)):
        model.train()
        update(optimizer, functional.cross_entropy(model(x), label))
        if step % 4 == 3:
            model.eval()
            with torch.no_grad():
                sum(float(functional.cross_entropy(model(x), label)) for x, label in held)


def gpt():
    """Fools: same input other output, no gradient, NaN. Dropout, tied weights, places that are the same input in each step,
    scores of -inf, rows of the table of places that no text is long enough for, gradient clipping."""
    model = Gpt(dropout=0.1)
    model.head.weight = model.words.weight
    kinds = [[p for p in model.parameters() if p.dim() > 1], [p for p in model.parameters() if p.dim() == 1]]
    optimizer = torch.optim.AdamW([{"params": kinds[0], "weight_decay": 0.1}, {"params": kinds[1], "weight_decay": 0.0}], lr=1e-3)
    for text, then in texts(10):
        optimizer.zero_grad()
        text_loss(model(text), then).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def generation():
    """Fools: same input other output, module with a state. Between updates the model writes a text: it is given one token
    at a time, some of them the same, and keeps what it read in a state of its own that is cleared for each text."""
    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.cell, self.head, self.state = nn.Embedding(32, 16), nn.GRUCell(16, 16), nn.Linear(16, 32), None

        def forward(self, token):
            self.state = self.cell(self.words(token), self.state)
            return self.head(self.state)

    model = Writer()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step, (text, then) in enumerate(texts(8)):
        model.state = None
        logits = torch.stack([model(token) for token in text.unbind(1)], 1)
        update(optimizer, text_loss(logits, then))
        if step % 4 == 3:
            model.eval()
            with torch.no_grad():
                model.state, token = None, torch.zeros(2, dtype=torch.long)
                for _ in range(8):
                    token = model(token).argmax(1)
            model.train()


def truncated_lstm():
    """Fools: stale gradient, same input other output. The state of one chunk is the start of the next, detached: no
    gradient goes back into chunks whose weights have changed since."""
    words, lstm, head = nn.Embedding(32, 16), nn.LSTM(16, 24, batch_first=True), nn.Linear(24, 32)
    model = nn.ModuleList([words, lstm, head])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    (text, then), = texts(1, length=80)
    state = None
    for start in range(0, 80, 8):
        result, state = lstm(words(text[:, start:start + 8]), state)
        state = tuple(part.detach() for part in state)
        optimizer.zero_grad()
        text_loss(head(result), then[:, start:start + 8]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()


def frozen_backbone():
    """Fools: no gradient, a parameter that never moves. The first layers do not ask for gradients, and the optimizer has
    the others."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
    model[0].requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for x, label in pictures(10):
        update(optimizer, functional.cross_entropy(model(x), label))


def linear_probe():
    """Fools: module left in eval mode, no gradient. Features come from a backbone in eval mode without gradients, all
    along."""
    backbone = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.5))
    backbone.eval()
    probe = nn.Linear(32, 4)
    optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
    for x, label in pictures(10):
        with torch.no_grad():
            features = backbone(x)
        update(optimizer, functional.cross_entropy(probe(features), label))


def frozen_norm():
    """Fools: module left in eval mode. Fine-tuning keeps the running statistics of batch norm: its layers are in eval mode
    within a model in training mode, while their weights are trained."""
    class Tuned(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
            return self

    model = Tuned(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(32, 4))
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, label in pictures(10):
        update(optimizer, functional.cross_entropy(model(x), label))


def unfreezing():
    """Fools: no gradient, a parameter that never moves, learning rate jumps. A layer more is trained every third step, and
    joins the optimizer with a rate of its own."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    model.requires_grad_(False)
    model[4].requires_grad_(True)
    optimizer = torch.optim.Adam(model[4].parameters(), lr=1e-3)
    for step, (x, y) in enumerate(rows(12)):
        if step in (3, 6):
            layer = model[2 if step == 3 else 0]
            layer.requires_grad_(True)
            optimizer.add_param_group({"params": layer.parameters(), "lr": 3e-4})
        update(optimizer, functional.mse_loss(model(x), y))


def lora():
    """Fools: no gradient, steadily growing norms. The weight is frozen; B begins at zero, so A has a gradient of zero in
    the first step, and B grows from nothing."""
    class Lora(nn.Module):
        def __init__(self, linear, rank=4):
            super().__init__()
            self.linear = linear.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(rank, linear.in_features) / rank)
            self.b = nn.Parameter(torch.zeros(linear.out_features, rank))

        def forward(self, x):
            return self.linear(x) + x @ self.a.T @ self.b.T

    model = nn.Sequential(Lora(nn.Linear(8, 32)), nn.ReLU(), Lora(nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))


def mixture():
    """Fools: no gradient, a parameter that never moves. Of many experts those that get no row of a batch are not called in
    that step."""
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.experts = nn.Linear(8, 8), nn.ModuleList(mlp(8, 16, 8) for _ in range(8))

        def forward(self, x):
            share, choice = self.router(x).softmax(1).max(1)
            result = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                mine = (choice == number).nonzero()[:, 0]
                if len(mine):
                    result = result.index_add(0, mine, share[mine, None] * expert(x[mine]))
            return result

    model = nn.Sequential(Mixture(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in rows(10, count=6):
        update(optimizer, functional.mse_loss(model(x), y))


def weight_averaging():
    """Fools: optimizer of other tensors, learning rate jumps, module left in training mode. The average has parameters that
    no optimizer moves; its batch norm is computed in training mode, without gradients, when training has ended."""
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.02, anneal_epochs=2)
    data = list(rows(10))
    for step, (x, y) in enumerate(data):
        update(optimizer, functional.mse_loss(model(x), y))
        if step >= 5:
            average.update_parameters(model)
            schedule.step()
    torch.optim.swa_utils.update_bn(data, average)
    average.eval()
    with torch.no_grad():
        average(data[0][0])


def accumulation():
    """Fools: zero_grad missing. Gradients of four micro-batches add up, each loss divided by four."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number, (x, y) in enumerate(rows(40, count=4)):
        (functional.mse_loss(model(x), y) / 4).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def accumulation_by_tokens():
    """Fools: zero_grad missing, labels all ignored, loss scale. Sums of micro-batches are divided by all tokens of the
    step; prompts are ignored, and in one text nothing else was left of it."""
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(8):
        batch = []
        for text, then in texts(2, count=4):
            prompt = torch.randint(2, 9, (4, 1))
            prompt[step % 4] = 12
            batch.append((text, then.masked_fill(torch.arange(12) < prompt, -100)))
        tokens = sum(int((then != -100).sum()) for _, then in batch)
        optimizer.zero_grad()
        for text, then in batch:
            (text_loss(model(text), then, ignore_index=-100, reduction="sum") / tokens).backward()
        optimizer.step()


def autocast():
    """Fools: outputs of few bits. Matrix products are bf16, weights and optimizer f32."""
    model = mlp(8, 64, 64, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in rows(10):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = model(x)
        update(optimizer, functional.mse_loss(result.float(), y))


def loss_scale():
    """Fools: NaN, loss scale collapse, a parameter that never moves. The scale begins too high on purpose: the first steps
    are skipped, with infinite gradients, until it fits; then it stays."""
    model = mlp(8, 64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 17)
    for x, y in rows(12):
        with torch.autocast("cpu", dtype=torch.float16):
            result = model(x)
        loss = functional.mse_loss(result.float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def checkpointing():
    """Fools: same input other output, two forward passes a step. Parts are computed again in the backward pass, dropout
    with the numbers of the first time; one part by each of the two ways."""
    first, second = (nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.2)) for _ in range(2))
    model = nn.ModuleList([nn.Linear(8, 16), first, second, nn.Linear(16, 1)])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in rows(10):
        x = checkpoint(first, model[0](x), use_reentrant=True)
        x = checkpoint(second, x, use_reentrant=False)
        update(optimizer, functional.mse_loss(model[3](x), y))


def pruned():
    """Fools: no gradient, elements that never move. Masks take two thirds of the weights away; their gradients are zero."""
    model = mlp(8, 32, 1)
    for layer in (model[0], model[2]):
        prune.l1_unstructured(layer, "weight", amount=0.67)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))


def padded():
    """Fools: no gradient, elements that never move. Texts are filled up with a padding word, whose row stays zero and whose
    labels are ignored; half of the words are in no text."""
    words, lstm, head = nn.Embedding(64, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 64)
    optimizer = torch.optim.Adam([*words.parameters(), *lstm.parameters(), *head.parameters()], lr=3e-3)
    for text, then in texts(10, words=31):
        rest = torch.arange(12) >= torch.randint(3, 13, (8, 1))
        text, then = (text + 1).masked_fill(rest, 0), (then + 1).masked_fill(rest, 0)
        update(optimizer, text_loss(head(lstm(words(text))[0]), then, ignore_index=0))


def sparse():
    """Fools: two steps a batch, optimizer of other tensors, elements that never move. A table with sparse gradients has an
    optimizer of its own; both step once after each backward pass."""
    table, net = nn.EmbeddingBag(1000, 8, mode="sum", sparse=True), mlp(8, 16, 1)
    of_table = torch.optim.SparseAdam(table.parameters(), lr=1e-2)
    of_net = torch.optim.Adam(net.parameters(), lr=1e-3)
    value = torch.randn(1000)
    for _ in range(10):
        x = torch.randint(1000, (16, 5))
        of_table.zero_grad()
        of_net.zero_grad()
        functional.mse_loss(net(table(x))[:, 0], value[x].sum(1)).backward()
        of_table.step()
        of_net.step()


def spectral():
    """Fools: same input other output, a weight that changes without an optimizer. Spectral norm goes on with its power
    iteration in each call in training mode."""
    first, last = (parametrizations.spectral_norm(layer) for layer in (nn.Linear(8, 32), nn.Linear(32, 1)))
    model = nn.Sequential(first, nn.ReLU(), last)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, y in rows(10):
        near = model(x + 0.01 * torch.randn_like(x))
        update(optimizer, functional.mse_loss(model(x), y) + functional.mse_loss(near, y))


def weight_normed():
    """Fools: optimizer of other tensors. The weight that a layer uses is computed of two parameters, and is itself in no
    optimizer."""
    first, last = (parametrizations.weight_norm(layer) for layer in (nn.Linear(8, 32), nn.Linear(32, 1)))
    model = nn.Sequential(first, nn.Tanh(), last)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, y in rows(10):
        update(optimizer, functional.mse_loss(model(x), y))


def warmup():
    """Fools: learning rate zero, a parameter that does not move. The rate rises from zero, so the first step changes
    nothing, and falls along a cosine to nearly zero."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rise = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 4))
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7, eta_min=1e-8)
    for step, (x, y) in enumerate(rows(12)):
        update(optimizer, functional.mse_loss(model(x), y))
        (rise if step < 4 else fall).step()


def one_cycle():
    """Fools: learning rate jumps, no bias. The rate is 25 times as high after four steps, and 10,000 times lower than at
    first at the end; momentum goes the other way. The layers have no biases."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=12)
    for x, label in pictures(12):
        update(optimizer, functional.cross_entropy(model(x), label))
        schedule.step()


def restarts():
    """Fools: learning rate jumps. A cosine that starts again makes the rate jump up from nearly zero every fourth step."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=4)
    for x, y in rows(12):
        update(optimizer, functional.mse_loss(model(x), y))
        schedule.step()


def milestones():
    """Fools: learning rate jumps. The rate is divided by ten at two milestones."""
    model = mlp(8, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [4, 8])
    for x, y in rows(12):
        update(optimizer, functional.mse_loss(model(x), y))
        schedule.step()


def seeded(program):
    @functools.wraps(program)
    def run():
        torch.manual_seed(0)
        program()

    return run


CLEAN = {program.__name__: seeded(program) for program in (
    plain, convolutions, gpt, generation, truncated_lstm, frozen_backbone, linear_probe, frozen_norm, unfreezing, lora,
    mixture, weight_averaging, accumulation, accumulation_by_tokens, autocast, loss_scale, checkpointing, pruned, padded,
    sparse, spectral, weight_normed, warmup, one_cycle, restarts, milestones, *CLEAN_2, *CLEAN_3, *CLEAN_4, *REPEATED)}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        CLEAN[sys.argv[1]]()
    else:
        print("\n".join(CLEAN))
