"""Trains a model that torch.compile compiles with Inductor: compiled.py MODEL [eager] [FAULT...]. Prints a line of JSON: the losses'
bits, a hash of the weights, and what Dynamo counted. FAULT: `scale N`, `drop N` or `part N`, the code of the N-th C++
kernel computes another value; `graph N`, so does the N-th sum or product of the graph that Inductor lowers; `lowering NAME`, a
fault of lowering_faults.py."""
import hashlib
import json
import linecache
import re
import sys

import torch
import torch.nn.functional as F
from torch import nn

import lowering_faults

torch.set_num_threads(1)


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.norm, self.mlp = nn.LayerNorm(width), Mlp(width)

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.mlp(self.norm(x))


class Gpt(nn.Module):
    def __init__(self, blocks=2, width=32):
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.h = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 50)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.h:
            x = block(x)
        return self.head(x)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.norm(self.conv(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.blocks = nn.Sequential(Residual(8), Residual(8))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Views(nn.Module):
    """In-place operations, through views as well, and a layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        y = self.a(x)
        y[:, ::2].mul_(2).add_(1)
        y = self.b(self.b(y).tanh_())
        z = y.view(4, -1)
        z[1:].copy_(z[:-1] * 0.5)
        return y


class Breaks(nn.Module):
    """A call that Dynamo does not trace between two regions."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        x = F.silu(self.a(x))
        torch._dynamo.graph_break()
        return self.b(x) * 3


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTMCell(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        state = None
        for one in x.unbind(1):
            state = self.lstm(one, state)
        return self.head(state[0])


class Shared(nn.Module):
    """Layers that are compiled one by one and share a region; one of them is called twice."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Mlp(16) for _ in range(3)])
        if "eager" not in sys.argv:
            for layer in self.layers:
                layer.compile()

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.layers[1](x)


class Mix(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, a, b):
        return torch.where(a > 0, a * self.gain, b * 0.5)


class Odd(nn.Module):
    """Widths that are no multiple of a vector's; as many rows as columns."""

    def __init__(self, width=19):
        super().__init__()
        self.up, self.norm, self.mix = nn.Linear(width, width), nn.LayerNorm(width), Mix(width)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        return self.mix(self.norm(self.up(x)), x)


class Table(nn.Module):
    """Scales and shifts of two norms are parts of one parameter, as in AdaLN."""

    def __init__(self, width=32):
        super().__init__()
        self.norm, self.table = nn.LayerNorm(width, elementwise_affine=False), nn.Parameter(torch.randn(4, width))

    def forward(self, x):
        scale, shift, scale2, shift2 = self.table.chunk(4)
        x = self.norm(x) * (1 + scale) + shift
        return self.norm(x.tanh()) * (1 + scale2) + shift2


class Planes(nn.Module):
    """A number is added to each plane of a convolution's output, as in a U-Net's block."""

    def __init__(self, width=16):
        super().__init__()
        self.conv, self.proj = nn.Conv2d(3, width, 3), nn.Linear(8, width)

    def forward(self, x):
        return self.conv(x) + self.proj(F.silu(x[:, 0, 0, :8]))[:, :, None, None]


WHOLE = "whole"
OPTIMIZER, AUTOGRAD = "optimizer", "autograd"  # the optimizer's step is compiled, too; the backward pass is compiled as it runs
MODELS = {
    # name: what makes the model, what makes the batch of a step, options of torch.compile (None: the model compiles its parts;
    # WHOLE: a step of training is compiled, not the model)
    "gpt": (Gpt, lambda step: torch.randint(50, (4, 16)), {}),
    "resnet": (ResNet, lambda step: torch.randn(4, 3, 10, 10), {}),
    "lstm": (Recurrent, lambda step: torch.randn(4, 3, 16), {}),
    "views": (Views, lambda step: torch.randn(8, 16), {"fullgraph": True}),
    "breaks": (Breaks, lambda step: torch.randn(8, 16), {}),
    "shared": (Shared, lambda step: torch.randn(8, 16), None),
    "odd": (Odd, lambda step: torch.randn(19, 19), {}),
    "table": (Table, lambda step: torch.randn(16, 32), {}),
    "planes": (Planes, lambda step: torch.randn(4, 3, 10, 10), {}),
    "dropped": (lambda: nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.25), nn.Linear(16, 16)), lambda step: torch.randn(8, 16), {}),
    "step": (Gpt, lambda step: torch.randint(50, (4, 16)), WHOLE),
    "dynamic": (lambda: Mlp(16), lambda step: torch.randn(5 + step, 16), {"dynamic": True}),
    "tuned": (lambda: Block(32), lambda step: torch.randn(4, 16, 32), {"mode": "max-autotune"}),
    OPTIMIZER: (lambda: Mlp(16), lambda step: torch.randn(8, 16), {}),
    AUTOGRAD: (lambda: Mlp(16), lambda step: torch.randn(8, 16), WHOLE),
}


def scale(source):
    """The last stored value is 1 % larger. @return (the operand with the fault, the changed source)"""
    value, operand = re.findall(r"(\w+)\.store\((\w+) \+", source)[-1]
    return operand, source.replace("%s.store(%s " % (value, operand),
                                   "(%s * at::vec::Vectorized<float>(1.01f)).store(%s " % (value, operand))


def drop(source):
    """The last vector is not stored."""
    statement, operand = re.findall(r"(\w+\.store\((\w+) \+[^;]*;)", source)[-1]
    return operand, source.replace(statement, "")


def part(source):
    """A sum leaves out its first term."""
    changed = re.sub(r"(tmp_acc0_vec = tmp_acc0_vec \+ (\w+);)", r"if (x1 != 0) { \1 }", source)
    assert changed != source
    return re.findall(r"tmp_acc0_vec\.store\((\w+) \+|(\w+)\[static_cast<int64_t>\(x0\)\] = static_cast<float>\(tmp_acc0\)", changed)[0], changed


FAULTS = {"scale": scale, "drop": drop, "part": part}


def plant(kind, number):
    """Another value at one place of what Inductor generates. Tells on stderr where: the kernel and its operand, or the
    module."""
    if kind != "graph":
        from torch._inductor.async_compile import AsyncCompile
        original, seen = AsyncCompile.cpp_pybinding, []

        def cpp_pybinding(self, types, source):
            if len(seen) == number:
                caller = sys._getframe(1)
                kernel = linecache.getline(caller.f_code.co_filename, caller.f_lineno).split(" = ")[0]
                operand, source = FAULTS[kind](source)
                print("fault:", kernel, operand, file=sys.stderr)
            seen.append(source)
            return original(self, types, source)

        AsyncCompile.cpp_pybinding = cpp_pybinding
        return
    import torch._inductor.config as config

    class Pass:
        graphs = 0

        def __call__(self, graph):
            nodes = [node for node in graph.nodes if node.name.startswith(("add", "mul"))]
            if self.graphs == 0:
                node = nodes[number]
                with graph.inserting_after(node):
                    scaled = graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.01))
                scaled.meta = dict(node.meta)
                node.replace_all_uses_with(scaled, lambda user: user is not scaled)
                print("fault:", list(node.meta["nn_module_stack"].values())[-1][0], file=sys.stderr)
            self.graphs += 1

        def uuid(self):
            return "fault %d" % number

    config.post_grad_custom_post_pass = Pass()


def main():
    name, *rest = sys.argv[1:]
    is_eager = rest[:1] == ["eager"]
    if rest[:1] == ["lowering"]:
        lowering_faults.plant(rest[1])
    elif not is_eager and rest:
        plant(rest[0], int(rest[1]))
    make, batch, options = MODELS[name]
    torch.manual_seed(0)
    model = make()
    run = model if is_eager or options in (None, WHOLE) else torch.compile(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def train(x):
        optimizer.zero_grad()
        loss = run(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    if options == WHOLE and not is_eager:
        train = torch.compile(train)
    if name == OPTIMIZER and not is_eager:
        optimizer.step = torch.compile(optimizer.step)
    torch._dynamo.config.compiled_autograd = name == AUTOGRAD and not is_eager
    losses = [train(batch(step)).item().hex() for step in range(3)]
    weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    counted = {}
    if not is_eager:
        counters = torch._dynamo.utils.counters
        counted = {"graphs": counters["stats"]["unique_graphs"], "breaks": sum(counters["graph_break"].values())}
    print(json.dumps({"losses": losses, "weights": weights, **counted}))


main()
