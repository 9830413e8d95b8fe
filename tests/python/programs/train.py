"""An ordinary training script that knows nothing of convtrace, and keeps what it computed.

usage: train.py MODEL OUT [END]

OUT gets, by torch.save, a list of (step, phase, scope, call, slot, tensor) for every module output,
its gradient, the loss, parameters and their gradients, and the losses. END: how the script ends.
"""
import os
import signal
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 3


class Transformer(nn.Module):
    """Decoder blocks with attention by hand, dropout, tied embedding and keyword arguments."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                     nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x, mask=None):
            h = self.norm1(x)
            x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    def __init__(self, width=16, words=11):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([self.Block(width) for _ in range(2)])
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        mask = torch.full((tokens.shape[1],) * 2, float("-inf"), dtype=x.dtype).triu(1)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.head(x)

    @staticmethod
    def batch():
        return torch.randint(11, (2, 6))

    @staticmethod
    def loss(output):
        return nn.functional.cross_entropy(output.flatten(0, 1), torch.randint(11, (12,)))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1).to(memory_format=torch.channels_last),
            nn.ReLU(inplace=True), nn.Dropout2d(0.2), nn.Flatten())
        self.head = nn.Linear(8 * 16, 4)

    def forward(self, x):
        return self.head(self.features(x))

    @staticmethod
    def batch():
        return torch.randn(4, 3, 8, 8)

    @staticmethod
    def loss(output):
        return output.square().mean()


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 7, num_layers=2, batch_first=True)
        self.head = nn.Linear(7, 1)

    def forward(self, x):
        output, (h, c) = self.lstm(x)
        return self.head(output[:, -1]) + (h.mean() + c.mean())

    batch = staticmethod(lambda: torch.randn(3, 6, 5))
    loss = staticmethod(lambda output: output.abs().sum())


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.3)) for _ in range(3)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=i == 1)
        return x

    batch = staticmethod(lambda: torch.randn(4, 6, requires_grad=True))
    loss = staticmethod(lambda output: output.exp().mean())


class Mixed(nn.Module):
    """Autocast to bf16 with a scaled loss, a complex intermediate, a view as output, an integer output."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.fourier = Fourier()
        self.pick = Pick()

    def forward(self, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            x = self.layer(x)
        x = self.fourier(x.float())
        best, where = self.pick(x)
        return best + where.float().mean()

    batch = staticmethod(lambda: torch.randn(4, 8))
    loss = staticmethod(lambda output: output.sum())


class Fourier(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).mul(2)


class Pick(nn.Module):
    def forward(self, x):
        best, where = x.abs().max(dim=1)
        return best[::2], where


class Square(torch.autograd.Function):
    """Writes its input in place and says so."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        ctx.mark_dirty(x)
        return x.square_()

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return 2 * x * gradient


class Passing(torch.autograd.Function):
    """Returns its input, and its gradient, as they are."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@torch.library.custom_op("convtrace_programs::shift", mutates_args=())
def shift(x: torch.Tensor) -> torch.Tensor:
    return x + 1


shift.register_autograd(lambda ctx, gradient: gradient)


class Custom(nn.Module):
    """Custom ops that do nothing wrong."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return Passing.apply(shift(Square.apply(self.layer(x).clone()))[1:])

    batch = staticmethod(lambda: torch.randn(4, 6))
    loss = staticmethod(lambda output: output.mean())


MODELS = {kind.__name__.lower(): kind for kind in (
    Transformer, Cnn, Lstm, Checkpointed, Mixed, Custom)}


class Keeper:
    """Keeps copies of what passes, with the place at which a trace must have it."""

    def __init__(self, model):
        self.kept, self.step, self.calls = [], 0, {}
        self.owners = {}
        self.buffers = {name: tensor.clone() for name, tensor in model.named_buffers()}
        for name, module in model.named_modules():
            module.register_forward_hook(lambda m, a, output, name=name: self.output(name, m, output))
            for short, parameter in module.named_parameters(recurse=False):
                self.owners.setdefault(id(parameter), (name, short, parameter))

    def keep(self, phase, scope, call, slot, tensor):
        self.kept.append((self.step, phase, scope, call, slot, tensor.detach().clone()))

    def output(self, scope, module, output):
        phase = "forward" if torch._C._current_graph_task_id() == -1 else "recompute"
        call = self.calls.get((self.step, phase, scope), 0)
        self.calls[self.step, phase, scope] = call + 1
        for index, tensor in enumerate(flatten(output)):
            self.keep(phase, scope, call, "output:%d" % index, tensor)
            if tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(lambda g, slot="grad_output:%d" % index: self.keep(
                    "backward", scope, call, slot, g))

        buffers = [("%s.%s" % (scope, short) if scope else short, short, tensor)
                   for short, tensor in module.named_buffers(recurse=False)]
        if any(not torch.equal(self.buffers[name], tensor) for name, _, tensor in buffers):
            for name, short, tensor in buffers:
                self.buffers[name] = tensor.clone()
                self.keep(phase, scope, call, "buffer:" + short, tensor)

    def parameters(self, phase, slot):
        for scope, short, parameter in self.owners.values():
            tensor = parameter.grad if slot == "grad" else parameter
            if tensor is not None:
                self.keep(phase, scope, 0, "%s:%s" % (slot, short), tensor)


def flatten(item):
    if isinstance(item, torch.Tensor):
        return [item]
    return [t for part in item for t in flatten(part)] if isinstance(item, (tuple, list)) else []


def train(kind):
    torch.manual_seed(1)
    model = kind()
    keeper = Keeper(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=kind is Mixed)
    keeper.parameters("forward", "param")
    for keeper.step in range(STEPS):
        optimizer.zero_grad()
        loss = scaler.scale(kind.loss(model(kind.batch())))
        keeper.keep("loss", "", 0, "loss", loss)
        loss.backward()
        scaler.unscale_(optimizer)
        keeper.parameters("backward", "grad")
        if scaler.is_enabled():
            keeper.keep("optimizer", "", 0, "loss_scale", torch.tensor(scaler.get_scale()))
        scaler.step(optimizer)
        scaler.update()
        keeper.parameters("optimizer", "param")
    return keeper.kept + [(None, "rng", "", 0, "", torch.get_rng_state())]


def main():
    kept = train(MODELS[sys.argv[1]])
    torch.save(kept, sys.argv[2])
    end = sys.argv[3] if len(sys.argv) > 3 else "return"
    if end == "sys.exit":
        sys.exit(7)
    if end == "interrupt":  # Ctrl-C
        os.kill(os.getpid(), signal.SIGINT)
    if end == "os._exit":
        os._exit(8)
    if end == "raise":
        raise ValueError("on purpose")
    if end == "raise-in-module":
        nn.Linear(3, 3)(torch.randn(2, 4))


if __name__ == "__main__":
    main()
