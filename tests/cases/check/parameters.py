"""Programs in which a parameter gets no gradient, does not move, moves by itself, or is not the one that is optimized."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

from parts import CLASSES, STEPS, WIDTH, Block, Classifier, adamw, fit, load, sgd, vectors


class Detached(Classifier):
    def __init__(self, detach):
        super().__init__()
        self.detach = detach

    def forward(self, x):
        features = self.blocks(self.stem(x))
        return self.head(features.detach() if self.detach else features)


def detached_encoder(faulty):
    model = Detached(faulty)
    fit(model, adamw(model))


class Head(nn.Linear):
    """Its bias is cut off."""

    def forward(self, x):
        return F.linear(x, self.weight, self.bias.detach())


def detached_bias(faulty, penalty_alone=False):
    """A critic with a penalty of its gradients. The bias of its head has a gradient of the other term of the loss alone."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Softplus(), (Head if faulty else nn.Linear)(WIDTH, 1))
    optimizer = adamw(model)
    for x, _ in load(vectors()):
        value = model(x.requires_grad_())
        gradient, = torch.autograd.grad(value.sum(), x, create_graph=True)
        optimizer.zero_grad()
        ((gradient.norm(dim=1) - 1).square().mean() + (0 if penalty_alone else value.square().mean())).backward()
        optimizer.step()


class Warmed(Classifier):
    """The switch of gradients is left from a phase in which the stem was frozen."""

    def __init__(self, frozen):
        super().__init__()
        self.frozen = frozen

    def forward(self, x):
        with torch.set_grad_enabled(not self.frozen):
            x = self.stem(x)
        return self.head(self.blocks(x))


def no_grad_stem(faulty):
    model = Warmed(faulty)
    fit(model, sgd(model))


class Gated(nn.Module):
    """A branch that begins at zero: by a gate that learns, or by a number that stays."""

    def __init__(self, learns):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.gate = nn.Parameter(torch.full((1,), 1e-2)) if learns else 0.0

    def forward(self, x):
        return x + self.gate * self.branch(x)


def zero_gate(faulty):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Gated(not faulty), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    fit(model, adamw(model))


class Offset(nn.Module):
    """Reads a table at a learned place: by rounding, or between the two nearest rows."""

    def __init__(self, rounded):
        super().__init__()
        self.rounded, self.place = rounded, nn.Parameter(torch.rand(WIDTH) * 6 + 0.6)
        self.register_buffer("table", torch.linspace(-1, 1, 8))

    def forward(self, x):
        below = self.place.long().clamp(0, 6)
        part = self.place - below
        if self.rounded:
            return x + self.table[self.place.round().long().clamp(0, 7)]
        return x + self.table[below] * (1 - part) + self.table[below + 1] * part


def rounded_place(faulty):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Offset(faulty), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    fit(model, sgd(model))


def late_head(faulty):
    """The head is replaced for another number of classes when the optimizer has been made."""
    model = Classifier()
    model.head = nn.Linear(WIDTH, 100)
    optimizer = None
    if faulty:
        optimizer = adamw(model)
    model.head = nn.Linear(WIDTH, CLASSES)
    fit(model, optimizer or adamw(model))


def copied_head(faulty):
    """The optimizer has a copy of the head, which was made to keep its first weights."""
    model = Classifier()
    head = copy.deepcopy(model.head) if faulty else model.head
    groups = [{"params": [*model.stem.parameters(), *model.blocks.parameters()]}, {"params": head.parameters(), "lr": 3e-3}]
    fit(model, torch.optim.AdamW(groups, lr=1e-3))


def lost_in_rounding(faulty):
    """Weights of 16 bits and small updates: a norm's weights are 1 and stay 1."""
    model = Classifier()
    if faulty:
        model.bfloat16()
    optimizer = adamw(model, 3e-4)
    for x, y in load(vectors()):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=not faulty):
            out = model(x.bfloat16() if faulty else x).float()
        F.cross_entropy(out, y).backward()
        optimizer.step()


class Plain(torch.optim.Optimizer):
    """SGD, which makes its operands contiguous before it writes."""

    def __init__(self, params, lr, faulty):
        super().__init__(params, {"lr": lr})
        self.faulty = faulty

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                updated = p.data.contiguous().add_(p.grad.contiguous(), alpha=-group["lr"])
                if not self.faulty:
                    p.copy_(updated)


class Autoencoder(nn.Module):
    """The encoder begins as the decoder's transpose: a view that is not contiguous."""

    def __init__(self, width=16):
        super().__init__()
        self.decoder, self.encoder = nn.Linear(width, WIDTH), nn.Linear(WIDTH, width)
        self.encoder.weight = nn.Parameter(self.decoder.weight.detach().clone().t())

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


def not_contiguous(faulty):
    model = Autoencoder()
    optimizer = Plain(model.parameters(), 0.1, faulty)
    for x, _ in load(vectors()):
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()


def rebuilt_model(faulty):
    """A checkpoint is read into a model that is built again, behind the optimizer's back."""
    model = Classifier()
    optimizer = adamw(model)
    state = copy.deepcopy(model.state_dict())
    if faulty:
        model = Classifier()
    model.load_state_dict(state)
    fit(model, optimizer)


def cast_model(faulty):
    """A conversion that makes new parameters, as some devices need, after the optimizer was made."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    model = Classifier()
    optimizer = sgd(model) if faulty else None
    model.double()
    optimizer = optimizer or sgd(model)
    fit(model, optimizer, [(x.double(), y) for x, y in load(vectors())])


class Prototypes(nn.Module):
    """Features are compared with prototypes; a queue of features begins as some of them."""

    def __init__(self, faulty):
        super().__init__()
        self.body, self.prototypes = nn.Sequential(nn.Linear(WIDTH, WIDTH), Block()), nn.Linear(WIDTH, 24, bias=False)
        rows = self.prototypes.weight.data[-8:]
        self.queue = rows if faulty else rows.clone()
        self.place = 0

    def forward(self, x):
        features = F.normalize(self.body(x), dim=1)
        with torch.no_grad():
            self.queue[self.place] = features[0]
            self.place = (self.place + 1) % 8
            near = (features @ self.queue.t()).mean(1, keepdim=True)
        return self.prototypes(features) * 5 + 0.1 * near


def queue_over_weights(faulty):
    """While the prototypes are frozen, by gradients set to None, the queue writes over them."""
    model = Prototypes(faulty)
    optimizer = sgd(model, 0.1)
    for step, (x, y) in enumerate(load(vectors())):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if step < STEPS - 3:
            model.prototypes.weight.grad = None
        optimizer.step()


def alias_of_head(faulty):
    """An average of the weights is kept in memory that one head shares; the heads are trained in turn."""
    stem, heads = nn.Linear(WIDTH, WIDTH), nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in range(2))
    model = nn.ModuleDict({"stem": stem, "heads": heads})
    mean = heads[1].weight.data if faulty else heads[1].weight.data.clone()
    optimizer = sgd(model)
    for step, (x, y) in enumerate(load(vectors())):
        optimizer.zero_grad()
        features = torch.tanh(model["stem"](x))
        F.cross_entropy(heads[step % 2](features), y).backward()
        optimizer.step()
        mean.lerp_(heads[0].weight.data, 0.05)
