"""Programs in which equal inputs give another output, and in which a gradient is that of an earlier step."""
import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from parts import CLASSES, WIDTH, Block, Classifier, adamw, fit, load, sgd, vectors


class Recomputed(Classifier):
    """Keeps the inputs of its blocks alone."""

    def __init__(self, *blocks, preserve=True):
        super().__init__()
        self.blocks, self.preserve = nn.ModuleList(blocks), preserve

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=self.preserve)
        return self.head(x)


def checkpoint_dropout(faulty):
    """The state of the random generator is not kept for blocks that drop."""
    model = Recomputed(Block(inner=0.1), Block(inner=0.1), preserve=not faulty)
    fit(model, adamw(model))


def checkpoint_last_dropout(faulty):
    """The dropout is the last op of a block: the recomputation stops in it, when all is there that the backward needs."""
    model = Recomputed(Block(drop=0.1), Block(drop=0.1), preserve=not faulty)
    fit(model, adamw(model))


class Quantized(nn.Module):
    """Rounds to 8 bits by the scale of its last call, as delayed scaling does."""

    def __init__(self, each_call):
        super().__init__()
        self.linear, self.each_call, self.seen = nn.Linear(WIDTH, WIDTH), each_call, None
        self.register_buffer("scale", torch.tensor(0.05))

    def update(self):
        self.scale.copy_(self.seen / 127)

    def forward(self, x):
        rounded = (x / self.scale).round().clamp(-127, 127) * self.scale
        self.seen = x.detach().abs().max()
        y = self.linear(x + (rounded - x).detach())
        if self.each_call:
            self.update()
        return y


def checkpoint_scale(faulty):
    """The scale is updated by the call: the recomputation has the next one."""
    layers = [Quantized(each_call=faulty), Quantized(each_call=faulty)]
    model = Recomputed(*layers)
    optimizer = adamw(model)
    for x, y in load(vectors()):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        for layer in layers:
            if not faulty:
                layer.update()


workspace = torch.zeros(0)


@torch.library.custom_op("check::row_sums", mutates_args=())
def row_sums(x: torch.Tensor, clear: bool) -> torch.Tensor:
    """Sums in four parts, which are added up in a workspace that lives on."""
    global workspace
    if clear or workspace.shape != x.shape[:1]:
        workspace = x.new_zeros(x.shape[0])
    for part in x.chunk(4, 1):
        workspace.add_(part.sum(1))
    return workspace.clone()


row_sums.register_autograd(lambda ctx, grad: (grad[:, None].expand(ctx.shape), None),
                           setup_context=lambda ctx, inputs, output: setattr(ctx, "shape", inputs[0].shape))


class Centred(nn.Module):
    """Takes the mean of each row away, by an op of its own."""

    def __init__(self, clear):
        super().__init__()
        self.clear = clear

    def forward(self, x):
        return x - row_sums(x, self.clear)[:, None] / x.shape[1]


def workspace_op(faulty, *after):
    """Two calls with the same features: the op begins with the sums of its last call. Nothing draws random numbers."""
    stem, centred = nn.Linear(WIDTH, WIDTH), Centred(clear=not faulty)
    head = nn.Sequential(nn.Tanh(), *after, nn.Linear(WIDTH, CLASSES))
    model = nn.ModuleDict({"stem": stem, "centred": centred, "head": head})

    def twice(model, x):
        x = model["stem"](x)
        return [model["head"](model["centred"](x)) for _ in range(2)]

    optimizer = sgd(model)
    for x, y in load(vectors()):
        optimizer.zero_grad()
        first, second = twice(model, x)
        apart = F.kl_div(first.log_softmax(1), second.softmax(1), reduction="batchmean")
        (F.cross_entropy(first, y) + F.cross_entropy(second, y) + apart).backward()
        optimizer.step()


def workspace_op_and_dropout(faulty):
    """The same in a training that draws random numbers: what two dropouts make of one input is brought together."""
    workspace_op(faulty, nn.Dropout(0.1))


@torch.library.custom_op("check::keep_positive", mutates_args=())
def keep_positive(x: torch.Tensor, everything: bool) -> torch.Tensor:
    """Writes the elements that are kept; the others only if it is told to."""
    y = torch.empty_like(x)
    if everything:
        y.zero_()
    kept = x > 0
    y[kept] = x[kept]
    return y


def _keep_inputs(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _of_positive(ctx, grad):
    return grad * (ctx.saved_tensors[0] > 0), None


keep_positive.register_autograd(_of_positive, setup_context=_keep_inputs)


class Positive(nn.Module):
    def __init__(self, everything):
        super().__init__()
        self.linear, self.everything = nn.Linear(WIDTH, WIDTH), everything

    def forward(self, x):
        return keep_positive(self.linear(x), self.everything).clamp(0, 10)


def unwritten_op(faulty):
    """An op leaves memory as it was allocated; the recomputation gets other memory."""
    model = Recomputed(Positive(not faulty), Block(), Positive(not faulty))
    fit(model, sgd(model, 0.01))


class Attention(nn.Module):
    """Drops attention weights by a function that does not know of modes, unless it is told."""

    def __init__(self, faulty):
        super().__init__()
        self.qkv, self.out, self.faulty = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), faulty

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = (q @ k.transpose(-1, -2) / WIDTH ** 0.5).softmax(-1)
        weights = F.dropout(weights, 0.2, training=True if self.faulty else self.training)
        return x + self.out(weights @ v)


def evaluation_dropout(faulty):
    """Dropout goes on in evaluation, where the same batch is asked twice: for the loss and for the accuracy."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Attention(faulty), nn.Linear(WIDTH, CLASSES))
    optimizer = adamw(model)
    loader, held = load(vectors(16 * 10 * 8), batch=16 * 8), vectors(64, seed=9).tensors
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        F.cross_entropy(model(x.view(16, 8, WIDTH)).flatten(0, 1), y).backward()
        optimizer.step()
        if step % 4 == 3:
            model.eval()
            with torch.no_grad():
                x, y = held[0].view(8, 8, WIDTH), held[1]
                F.cross_entropy(model(x).flatten(0, 1), y)
                (model(x).flatten(0, 1).argmax(1) == y).float().mean()
            model.train()


class CachedLinear(torch.autograd.Function):
    """Its weight gradient is kept by shape."""
    kept = {}

    @staticmethod
    def forward(ctx, x, weight, faulty):
        ctx.save_for_backward(x, weight)
        ctx.faulty = faulty
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        if not ctx.faulty:
            CachedLinear.kept.clear()
        if weight.shape not in CachedLinear.kept:
            CachedLinear.kept[weight.shape] = grad.t() @ x
        return grad @ weight, CachedLinear.kept[weight.shape].clone(), None


class Calling(nn.Module):
    """A linear layer by an autograd.Function."""

    def __init__(self, function, inputs, outputs, *rest):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * inputs ** -0.5)
        self.function, self.rest = function, rest

    def forward(self, x):
        return self.function.apply(x, self.weight, *self.rest)


def cached_gradient(faulty):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), Calling(CachedLinear, WIDTH, CLASSES, faulty))
    fit(model, sgd(model))


def hook_gradient(faulty):
    """A hook that compresses a gradient refreshes what it returns only for a time."""
    model = Classifier()
    calls, kept = itertools.count(), {}

    def compressed(grad):
        if not faulty or next(calls) < 4:
            kept["grad"] = grad.half().float()
        return kept["grad"].clone()

    model.stem.weight.register_hook(compressed)
    fit(model, sgd(model))


class BufferedLinear(torch.autograd.Function):
    """Its weight gradient is written into one buffer through views, of which one write is lost from the fourth step on."""

    @staticmethod
    def forward(ctx, x, weight, buffer, calls, faulty):
        ctx.save_for_backward(x, weight)
        ctx.buffer, ctx.lost = buffer, faulty and next(calls) >= 4
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        half = weight.shape[0] // 2
        gradient = grad.t() @ x
        ctx.buffer[:half] = gradient[:half]
        if not ctx.lost:
            ctx.buffer[half:] = gradient[half:]
        return grad @ weight, ctx.buffer.clone(), None, None, None


def buffered(inputs, outputs, faulty):
    layer = Calling(BufferedLinear, inputs, outputs, torch.zeros(outputs, inputs), itertools.count(), faulty)
    model = nn.Sequential(nn.Linear(WIDTH, inputs), layer, nn.Tanh(), nn.Linear(outputs, CLASSES))
    fit(model, sgd(model))


def partial_gradient(faulty):
    """8,192 elements: too few for hashes of ranges."""
    buffered(WIDTH, 256, faulty)


def partial_gradient_large(faulty):
    """65,536 elements."""
    buffered(128, 512, faulty)
