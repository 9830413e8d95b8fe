"""A small transformer. The backward of the first kind of the command line is wrong in step 1, that of the second is not
finite in step 2. Kinds: swish (a custom op between modules), attention (a function in a module), scale (an op that works in
place on its grad_output beside a residual; always finite), norm (a module behind an embedding), loss (a criterion); none; plain
(right, but computed otherwise)."""
import sys

import torch

nn, F = torch.nn, torch.nn.functional
WRONG, NAN = sys.argv[1:]
STEP = 0


def is_wrong(kind):
    return kind == WRONG and STEP == 1


def is_nan(kind):
    return kind == NAN and STEP == 2


def spoiled(kind, value, x):
    """value, with a part of x's gradient too much in step 1, and NaN in its gradient in step 2."""
    if is_wrong(kind):
        return value + 0.5 * (x - x.detach()).sum()
    if is_nan(kind):
        return value + (x - x.detach()).square().sum().sqrt()
    return value


@torch.library.custom_op("blame::swish", mutates_args=())
def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def swish_backward(ctx, grad):
    x, = ctx.saved_tensors
    s = torch.sigmoid(x)
    if is_wrong("swish"):
        return grad * s
    right = grad * (s + x * s * (1 - s))
    return right / 0 * 0 if is_nan("swish") else right


swish.register_autograd(swish_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 0.5

    @staticmethod
    def backward(ctx, grad):
        return grad.mul_(0.5) if is_wrong("scale") else grad * 0.5


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32))

    def forward(self, x):
        return spoiled("norm", F.rms_norm(x, (32,)) * self.weight, x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        taken = self.qkv(x)
        q, k, v = taken.chunk(3, -1)
        return self.out(spoiled("attention", F.scaled_dot_product_attention(q, k, v), taken))


class Forward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        h = self.up(x)
        return self.down(F.silu(h) if WRONG == "plain" else swish(h))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention, self.forward_part = Norm(), Attention(), Forward()

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        h = self.forward_part(x)
        return x + (h * 0.5 if WRONG == "plain" else Scale.apply(h))


class Loss(nn.Module):
    def forward(self, x, labels):
        return spoiled("loss", F.cross_entropy(x.flatten(0, 1), labels.flatten()), x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.head = nn.Embedding(20, 32), nn.ModuleList(Block() for _ in range(2)), nn.Linear(32, 20)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model, criterion = Model(), Loss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(3):
    STEP = step
    tokens = torch.randint(0, 20, (4, 6))
    loss = criterion(model(tokens), tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
