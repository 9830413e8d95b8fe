"""Trainings of other models and layouts than those of programs.py, made by other hands: `family.layout`."""

import contextlib
import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from pair import Pair

STEPS = 3


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g


class Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Gather(torch.autograd.Function):
    """all-gather in dim; backward: own part (grad replicated)."""

    @staticmethod
    def forward(ctx, x, dim, swap):
        ctx.dim = dim
        n = dist.get_world_size()
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(n)]
        dist.all_gather(parts, x)
        return torch.cat(parts[::-1] if swap else parts, dim)

    @staticmethod
    def backward(ctx, g):
        return g.chunk(dist.get_world_size(), ctx.dim)[dist.get_rank()].contiguous(), None, None


class GatherSum(Gather):
    """all-gather in dim; backward: reduce-scatter."""

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g.chunk(dist.get_world_size(), ctx.dim)[dist.get_rank()].contiguous(), None, None


class ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        x = x.clone()
        dist.all_reduce(x)
        return x.chunk(dist.get_world_size(), dim)[dist.get_rank()].contiguous()

    @staticmethod
    def backward(ctx, g):
        parts = [torch.empty_like(g.contiguous()) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, g.contiguous())
        return torch.cat(parts, ctx.dim), None


# ---------- conv
class Conv(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(3, 12, 3, padding=1), nn.GroupNorm(3, 12)
        self.c2, self.n2 = nn.Conv2d(12, 18, 3, stride=2), nn.GroupNorm(3, 18)
        self.fc = nn.Linear(18, 10)

    def forward(self, x):
        x = F.relu(self.n1(self.c1(x)))
        return self.fc(F.relu(self.n2(self.c2(x))).mean((2, 3)))


class Seq(nn.Sequential):
    pass


def conv_data(g):
    return torch.randn(8, 3, 9, 9, generator=g), torch.randint(0, 10, (8,), generator=g)


def seq_net(words):
    return nn.Sequential(nn.Linear(20, 33), nn.Tanh(), nn.Sequential(nn.Linear(33, 33), nn.LayerNorm(33), nn.SiLU()), nn.Linear(33, 7))


def seq_data(g):
    return torch.randn(8, 20, generator=g), torch.randint(0, 7, (8,), generator=g)


# ---------- recurrences
class Lstm(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.emb = nn.Embedding(37, 16)
        self.rnn = nn.LSTM(16, 24, batch_first=True)
        self.head = nn.Linear(24, 37)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0]).flatten(0, 1)


def word_data(g):
    return torch.randint(0, 37, (8, 6), generator=g), torch.randint(0, 37, (48,), generator=g)


class Cell(nn.Module):
    def __init__(self, vec):
        super().__init__()
        self.a = nn.Parameter(torch.tensor([0.7] if vec else 0.7))
        self.lin = nn.Linear(16, 16)

    def forward(self, h, x):
        return h * torch.sigmoid(self.a) + torch.tanh(self.lin(x))


class Ssm(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.emb = nn.Embedding(37, 16)
        self.cell = Cell("vec" in words)
        self.gain = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(16, 37)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.seen += 1
        x = self.emb(x)
        h = torch.zeros_like(x[:, 0])
        out = []
        for t in range(x.shape[1]):
            h = self.cell(h, x[:, t])
            out.append(h * self.gain)
        return self.head(torch.stack(out, 1)).flatten(0, 1)


# ---------- transformer-like
class Layer(nn.Module):
    def __init__(self, d, words):
        super().__init__()
        self.n1, self.qkv, self.o = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.n2, self.up, self.down = nn.RMSNorm(d), nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d)
        self.skip = True
        if "zero" in words:
            for m in (self.o, self.down):
                nn.init.zeros_(m.weight)
                nn.init.zeros_(m.bias)
            nn.init.zeros_(self.qkv.bias)

    def forward(self, x, mask):
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :]).transpose(1, 2).flatten(-2)
        x = x + self.o(y) if self.skip else self.o(y)
        return x + self.down(F.silu(self.up(self.n2(x))))


class Enc(nn.Module):
    """tied, masked, with an auxiliary output; prime sizes: uneven shards"""

    def __init__(self, words):
        super().__init__()
        d = 22
        self.emb = nn.Embedding(37, d)
        self.layers = nn.ModuleList(Layer(d, words) for _ in range(2))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 37, bias=False)
        self.aux = nn.Linear(d, 3)
        self.scale = nn.Parameter(torch.ones(1))
        if "untied" not in words:
            self.head.weight = self.emb.weight
        if "zero" in words:
            nn.init.zeros_(self.aux.weight)
            nn.init.zeros_(self.aux.bias)

    def forward(self, x):
        mask = x != 0
        mask[:, 0] = True
        h = self.emb(x)
        for layer in self.layers:
            h = layer(h, mask)
        h = self.norm(h) * self.scale
        return self.head(h).flatten(0, 1), self.aux(h[:, 0])


def enc_data(g):
    x = torch.randint(1, 37, (8, 6), generator=g)
    x[1, 4:] = 0
    x[6, 2:] = 0
    return x, (torch.randint(0, 37, (48,), generator=g), torch.randint(0, 3, (8,), generator=g))


# ---------- MoE
class Expert(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Moe(nn.Module):
    def __init__(self, words, d=16, n=4):
        super().__init__()
        self.router = nn.Linear(d, n)
        self.experts = nn.ModuleList(Expert(d) for _ in range(n))
        self.part = None
        self.shared_bias = nn.Parameter(torch.full((d,), 0.1))
        with torch.no_grad():
            self.router.bias[3] = -50.0  # an idle expert
        if "rare" in words:
            self.router.bias.data[2] = -0.75
        self.words = words

    def forward(self, x):
        flat = x.flatten(0, 1)
        p = self.router(flat).softmax(-1)
        g, i = p.max(-1)
        src = flat if self.part is None else Copied.apply(flat)
        gate = g if self.part is None else Copied.apply(g)
        y = torch.zeros_like(src)
        for e, m in enumerate(self.experts):
            if self.part is not None and e not in self.part:
                continue
            rows = (i == e).nonzero()[:, 0]
            if rows.numel() == 0 and "empty" not in self.words:
                continue
            y = y.index_add(0, rows, m(src[rows]) * gate[rows, None])
        if self.part is not None:
            if "moe-bias" in self.words:
                return Reduced.apply(y + self.shared_bias).view_as(x)
            y = Reduced.apply(y)
        return (y + self.shared_bias).view_as(x)


class MoeNet(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.emb = nn.Embedding(37, 16)
        self.norm = nn.LayerNorm(16)
        self.moe = Moe(words)
        self.head = nn.Linear(16, 37)

    def forward(self, x):
        h = self.emb(x)
        h = h + self.moe(self.norm(h))
        return self.head(h).flatten(0, 1)


# ---------- vocabulary parallel and sequence parallel by hand
class VEmb(nn.Embedding):
    def __init__(self, whole, r, n, words):
        k = whole.num_embeddings // n
        super().__init__(k, whole.embedding_dim)
        self.r = (n - 1 - r) if "vocab-order" in words else r
        self.lo = r * k
        self.k = k
        self.load_state_dict({"weight": whole.weight.chunk(n)[self.r]})

    def forward(self, x):
        y = x - self.lo
        out = (y < 0) | (y >= self.k)
        return Reduced.apply(super().forward(y.masked_fill(out, 0)).masked_fill(out[..., None], 0))


class VHead(nn.Linear):
    def __init__(self, whole, r, n, words):
        super().__init__(whole.in_features, whole.out_features // n)
        self.swap = "head-order" in words
        self.load_state_dict({"weight": whole.weight.chunk(n)[r], "bias": whole.bias.chunk(n)[r]})

    def forward(self, x):
        return super().forward(Copied.apply(x))


class GatherMod(nn.Module):
    def __init__(self, swap):
        super().__init__()
        self.swap = swap

    def forward(self, x):
        return Gather.apply(x, -1, self.swap)


class Vocab(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.emb = nn.Embedding(38, 16)
        self.norm = nn.LayerNorm(16)
        self.mid = nn.Linear(16, 16)
        self.head = nn.Linear(16, 38)
        self.logits = nn.Identity()

    def forward(self, x):
        h = self.emb(x)
        h = h + torch.tanh(self.mid(self.norm(h)))
        return self.logits(self.head(h)).flatten(0, 1)


def vocab_data(g):
    return torch.randint(0, 38, (8, 6), generator=g), torch.randint(0, 38, (48,), generator=g)


class Heads(nn.Module):
    """attention of this rank's heads; attributes as parallel code has them"""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.tp_size = 1
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return y


class HeadsPar(Heads):
    def forward(self, x):
        return Reduced.apply(super().forward(Copied.apply(x)))


class Att(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.emb = nn.Embedding(38, 16)
        self.att = Heads(16, 4)
        self.head = nn.Linear(16, 38)

    def forward(self, x):
        h = self.emb(x)
        return self.head(h + self.att(h)).flatten(0, 1)


class RowInside(nn.Linear):
    def forward(self, x):
        return Reduced.apply(super().forward(x))


class RowScatter(nn.Linear):
    def forward(self, x):
        return ScatterSum.apply(super().forward(x), 1)


class SpMlp(nn.Module):
    inside = False

    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d, bias=False)
        self.sp = False
        self.swap = False

    def forward(self, x):  # x: sharded over the sequence where sp
        h = self.norm(x)
        if self.sp:
            h = GatherSum.apply(h, 1, self.swap)
        h = self.down(F.gelu(self.up(h)))
        return x + (ScatterSum.apply(h, 1) if self.sp and not self.inside else h)


class Sp(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.emb = nn.Embedding(38, 16)
        self.a, self.b = SpMlp(16), SpMlp(16)
        self.head = nn.Linear(16, 38)
        self.sp = False

    def forward(self, x):
        h = self.emb(x)
        if self.sp:
            h = h.chunk(dist.get_world_size(), 1)[dist.get_rank()]
        if self.sp and self.a.inside:
            h = h.clone(memory_format=torch.contiguous_format)
        h = self.b(self.a(h))
        if self.sp:
            h = Gather.apply(h, 1, False)
        return self.head(h).flatten(0, 1)


# ---------- fused names, renames
class GluA(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.inp = nn.Linear(20, 16)
        both = nn.Linear(16, 48)
        out = nn.Linear(24, 7)
        if "other" in words:
            self.wi = both
            self.wo = out
            self.other = True
        else:
            with torch.random.fork_rng():
                self.w1, self.w2 = nn.Linear(16, 24), nn.Linear(16, 24)
            for m, a, b in zip((self.w1, self.w2), both.weight.chunk(2), both.bias.chunk(2)):
                m.load_state_dict({"weight": a, "bias": b})
            self.w3 = out
            self.other = False

    def forward(self, x):
        x = self.inp(x)
        if self.other:
            a, b = self.wi(x).chunk(2, -1)
            return self.wo(F.silu(a) * b)
        return self.w3(F.silu(self.w1(x)) * self.w2(x))


# ---------- directed, after reading the code
class ZeroHead(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.emb = nn.Embedding(38, 16)
        self.mid = nn.Linear(16, 16)
        self.head = nn.Linear(16, 38)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        h = self.emb(x)
        return self.head(h + torch.tanh(self.mid(h))).flatten(0, 1)


class Value(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.a = nn.Linear(20, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.a(x)))


def value_data(g):
    return torch.randn(2, 20, generator=g), torch.randn(2, 1, generator=g)


class Masked(nn.Module):
    """Words and a mask of booleans as inputs"""

    def __init__(self, words):
        super().__init__()
        self.emb = nn.Embedding(38, 17)
        self.pool = MaskPool()
        self.head = nn.Linear(17, 38)

    def forward(self, x):
        return self.head(self.pool(self.emb(x), x > 12)).flatten(0, 1)


class MaskPool(nn.Module):
    def forward(self, h, mask):
        return h * mask[..., None]


def odd_data(g):
    return torch.randint(0, 38, (6, 7), generator=g), torch.randint(0, 38, (42,), generator=g)


def tiny_net(words):
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def tiny_data(g):
    return torch.randn(2, 4, generator=g), torch.randint(0, 4, (2,), generator=g)


def one_net(words):
    return nn.Sequential(nn.Linear(20, 2), nn.Tanh(), nn.Linear(2, 20))


def one_data(g):
    return torch.randn(8, 20, generator=g), torch.randint(0, 20, (8,), generator=g)


FAMILIES = {
    "att": (Att, vocab_data),
    "zerohead": (ZeroHead, vocab_data),
    "value": (Value, value_data),
    "masked": (Masked, odd_data),
    "tiny": (tiny_net, tiny_data),
    "one": (one_net, one_data),
    "conv": (Conv, conv_data),
    "seq": (seq_net, seq_data),
    "lstm": (Lstm, word_data),
    "ssm": (Ssm, word_data),
    "enc": (Enc, enc_data),
    "moe": (MoeNet, word_data),
    "vocab": (Vocab, vocab_data),
    "sp": (Sp, vocab_data),
    "glu": (GluA, seq_data),
}


def train(name, rank, size, words):
    family, _, layout = name.partition(".")
    torch.manual_seed(0)
    make, data = FAMILIES[family]
    net = make(words)
    core = net
    if "bf16" in words:
        net = net.to(torch.bfloat16)
    parts, part, reduce_by_hand = 1, 0, []
    if layout == "ddp":
        parts, part = size, rank
        net = nn.parallel.DistributedDataParallel(net, find_unused_parameters=family == "moe")
    elif layout == "hddp":
        parts, part = size, rank
        reduce_by_hand = [n for n, _ in net.named_parameters() if not ("lost-one" in words and n == "c2.weight")]
    elif layout == "hdup":  # two parts of the data, two copies of each
        parts, part = 2, rank * 2 // size
        reduce_by_hand = [n for n, _ in net.named_parameters()]
    elif layout == "cp":  # the sequence in parts
        parts, part = size, rank
        reduce_by_hand = [n for n, _ in net.named_parameters()]
    elif layout in ("fsdp", "hsdp"):
        parts, part = size, rank
        mesh = init_device_mesh("cpu", (size,) if layout == "fsdp" else (2, size // 2), mesh_dim_names=("dp",) if layout == "fsdp" else ("r", "s"))
        for layer in getattr(net, "layers", []):
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        if "no-divide" in words:
            for m in net.modules():
                if hasattr(m, "set_gradient_divide_factor"):
                    m.set_gradient_divide_factor(1.0)
    elif layout == "tp":
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
        if family in ("tiny", "one"):
            parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        elif family == "seq":
            parallelize_module(net, mesh, {"0": ColwiseParallel(), "2.0": RowwiseParallel()})
        else:
            for layer in net.layers:
                parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    elif layout == "ep":
        k = 4 // size
        net.moe.part = range(rank * k, rank * k + k)
        for e in range(4):
            if e not in net.moe.part:
                net.moe.experts[e] = nn.Identity()
    elif layout == "vp":
        net.emb, net.head = VEmb(net.emb, rank, size, words), VHead(net.head, rank, size, words)
        net.logits = GatherMod("head-order" in words)
    elif layout == "hp":
        a = net.att
        a.heads //= size
        a.tp_size = size
        d = 16
        qkv = nn.Linear(d, 3 * d // size, bias=False)
        o = RowInside(d // size, d, bias=False)
        qkv.load_state_dict({"weight": torch.cat([t.chunk(size)[rank] for t in a.qkv.weight.chunk(3)])})
        o.load_state_dict({"weight": a.o.weight.chunk(size, 1)[rank]})
        a.qkv, a.o = qkv, o
        a.forward = (lambda f: lambda x: f(Copied.apply(x)))(a.forward)
    elif layout == "sp":
        net.sp = True
        for m in (net.a, net.b):
            m.sp = True
            k = 32 // size
            with torch.no_grad():
                up = nn.Linear(16, k)
                up.load_state_dict({"weight": m.up.weight.chunk(size)[rank], "bias": m.up.bias.chunk(size)[rank]})
                down = nn.Linear(k, 16, bias=False)
                down.load_state_dict({"weight": m.down.weight.chunk(size, 1)[rank]})
            m.up, m.down = up, down
            if "inside" in words:
                row = RowScatter(k, 16, bias=False)
                row.load_state_dict(down.state_dict())
                m.down = row
                m.inside = True
        net.b.swap = "seq-order" in words
    if "bwscale" in words:
        core.c1.weight.register_hook(lambda g: g * 1.5)
    if "residual" in words and rank == 1:
        core.layers[1].skip = False
    if "eps" in words and rank == 1:
        core.n1.eps = 3e-2
    params = list(net.parameters())
    lr = 0.1 * (1.1 if "lr" in words and rank == 1 else 1)
    if "adamw" in words:
        opt = torch.optim.AdamW(params, lr=lr / 20, weight_decay=0.0 if "no-decay" in words and rank == 1 else 0.1)
    elif "momentum" in words:
        opt = torch.optim.SGD(params, lr=lr, momentum=0.9, weight_decay=0.0 if "no-decay" in words and rank == 1 else 0.05)
    else:
        opt = torch.optim.SGD(params, lr=lr)
    g = torch.Generator().manual_seed(5)
    micros = 2 if "accum" in words else 1
    for step in range(STEPS):
        opt.zero_grad()
        for micro in range(micros):
            x, y = data(g)
            ys = y if isinstance(y, tuple) else (y,)
            rows = x.shape[0]
            start, stop = rows * part // parts, rows * (part + 1) // parts
            if "unequal" in words and parts == 2:
                start, stop = (0, 5) if part == 0 else (5, 8)
            if "overlap" in words and rank == 1:
                start, stop = start - 1, stop - 1
            xs = x[start:stop]
            if layout == "cp":
                xs = x.chunk(parts, 1)[part]
            total = ys
            if layout == "cp":
                ys = tuple(t.view(rows, -1).chunk(parts, 1)[part].flatten() for t in ys)
            else:
                ys = tuple(t[start * (t.shape[0] // rows) : stop * (t.shape[0] // rows)] for t in ys)
            if "labels" in words and rank == 1 and step == 1:
                ys = tuple(t.roll(1) for t in ys)
            if "bf16" in words and xs.is_floating_point():
                xs = xs.bfloat16()
            sync = net.no_sync() if layout == "ddp" and micro + 1 < micros else contextlib.nullcontext()
            if layout == "fsdp" and micros > 1:
                net.set_requires_gradient_sync(micro + 1 == micros)
            with sync:
                outs = net(xs)
                outs = outs if isinstance(outs, tuple) else (outs,)
                loss = 0
                for k, (o, t, all_) in enumerate(zip(outs, ys, total)):
                    one = (
                        F.mse_loss(o, t)
                        if t.is_floating_point()
                        else F.cross_entropy(o.float(), t, reduction="sum") * parts / all_.numel()
                        if "unequal" in words
                        else F.cross_entropy(o.float(), t)
                    )
                    loss = loss + (0.3 if k else 1) * one
                if "ulp" in words:
                    loss = loss * (1 + 2e-7 * rank)
                if micros > 1 and "scale" not in words:
                    loss = loss / micros
                loss.backward()
        if layout == "sp" and "no-norm-reduce" not in words:
            for n, p in net.named_parameters():
                if "norm" in n or n == "emb.weight":
                    dist.all_reduce(p.grad)
        elif layout == "sp":
            dist.all_reduce(net.emb.weight.grad)
        for n, p in net.named_parameters():
            if n in reduce_by_hand and p.grad is not None:
                dist.all_reduce(p.grad)
                p.grad /= size
        if "clip" in words:
            if layout in ("sp",):  # by hand: shards and copies
                sq_local = sum(p.grad.pow(2).sum() for n, p in net.named_parameters() if "up." in n or "down." in n)
                sq_copy = sum(p.grad.pow(2).sum() for n, p in net.named_parameters() if not ("up." in n or "down." in n))
                if "local-norm" not in words:
                    dist.all_reduce(sq_local)
                norm = (sq_local + sq_copy).sqrt()
                c = torch.clamp(0.05 / (norm + 1e-6), max=1.0)
                for p in params:
                    p.grad.mul_(c)
            else:
                torch.nn.utils.clip_grad_norm_(params, 0.05)
        if "stale" in words and rank == 1 and layout == "ep":
            net.moe.experts[2].up.weight.grad = None
        opt.step()


PAIRS = [
    # without a fault
    Pair("conv.one:1", "conv.ddp:2"),
    Pair("conv.one:1", "conv.fsdp:2"),
    Pair("conv.ddp:2", "conv.fsdp:4"),
    Pair("lstm.one:1", "lstm.ddp:2"),
    Pair("ssm.one:1", "ssm.ddp:2"),
    Pair("ssm.one:1:vec", "ssm.fsdp:2:vec"),
    Pair("enc.one:1", "enc.ddp:2"),
    Pair("enc.one:1", "enc.fsdp:2"),
    Pair("enc.one:1", "enc.hsdp:4"),
    Pair("enc.one:1:zero", "enc.fsdp:2:zero"),
    Pair("enc.one:1:zero", "enc.tp:2:zero"),
    Pair("moe.one:1", "moe.ddp:2"),
    Pair("moe.one:1", "moe.ep:2"),
    Pair("moe.one:1:empty", "moe.ep:2:empty"),
    Pair("vocab.one:1", "vocab.vp:2"),
    Pair("sp.one:1", "sp.sp:2"),
    Pair("sp.one:1:clip:momentum", "sp.sp:2:clip:momentum"),
    Pair("conv.one:1:accum", "conv.ddp:2:accum"),
    Pair("seq.one:1:accum", "seq.fsdp:2:accum"),
    Pair("enc.one:1:adamw:clip", "enc.fsdp:2:adamw:clip"),
    Pair("enc.one:1:adamw:clip", "enc.ddp:2:adamw:clip"),
    Pair("seq.one:1:unequal", "seq.ddp:2:unequal"),
    Pair("lstm.one:1:unequal", "lstm.ddp:2:unequal"),
    Pair("seq.one:1", "seq.tp:3"),
    Pair("seq.one:1:bf16", "seq.fsdp:2:bf16"),
    Pair("seq.one:1:adamw", "seq.hsdp:4:adamw"),
    Pair("glu.one:1", "glu.ddp:2:other", map="glu.toml"),
    Pair("glu.one:1:other", "glu.fsdp:2", map="glu_back.toml"),
    # faults
    Pair("conv.one:1", "conv.hddp:2:lost-one", "0 \\S+ c2 "),
    Pair("conv.one:1", "conv.ddp:2:eps", "0 forward n1 "),
    Pair("sp.one:1:clip:momentum", "sp.sp:2:clip:momentum:local-norm", "0 \\S+ .*(up|down|head|norm|emb) "),
    Pair("vocab.one:1", "vocab.vp:2:vocab-order", "0 forward emb "),
    Pair("vocab.one:1", "vocab.vp:2:head-order", "0 forward (head|logits|.*) "),
    Pair("sp.one:1", "sp.sp:2:seq-order", "0 forward b"),
    Pair("moe.one:1", "moe.ep:2:stale", "[01] \\S+ moe.experts.2.up "),
    Pair("moe.one:1", "moe.ep:2:moe-bias", "0 forward moe output"),
    Pair("enc.one:1", "enc.ddp:2:residual", "0 forward layers.1"),
    Pair("conv.one:1:accum", "conv.ddp:2:accum:scale", "0 \\S+ .*"),
    Pair("seq.one:1:accum", "seq.fsdp:2:accum:scale", "0 \\S+ .*"),
    Pair("enc.one:1:adamw", "enc.ddp:2:adamw:no-decay", "[01] .*"),
    Pair("seq.one:1:momentum", "seq.ddp:2:momentum:no-decay", "[01] .*"),
    Pair("sp.one:1", "sp.sp:2:no-norm-reduce", "0 \\S+ [ab].norm "),
    Pair("seq.one:1", "seq.ddp:2:overlap", "0 data .*"),
    Pair("lstm.one:1", "lstm.ddp:2:overlap", "0 data .*"),
    Pair("seq.one:1", "seq.ddp:2:lr", "[01] .*"),
    Pair("lstm.one:1", "lstm.ddp:2:labels", "1 .*"),
    Pair("enc.one:1:zero", "enc.ddp:2:zero:residual", "0 .*"),
    # Made after a look at the rules.
    Pair("att.one:1", "att.hp:2"),
    Pair("seq.one:1", "seq.fsdp:2:lr", "[01] .*"),
    Pair("enc.one:1:adamw", "enc.fsdp:2:adamw:no-decay", "[01] .*"),
    Pair("seq.one:1:momentum", "seq.fsdp:2:momentum:no-decay", "[01] .*"),
    Pair("vocab.one:1", "vocab.vp:2:lr", "[01] .*"),
    Pair("conv.hddp:2", "conv.hddp:4:bwscale", "0 backward .*"),
    Pair("conv.one:1", "conv.hddp:4:bwscale", "0 backward .*"),
    Pair("sp.one:1", "sp.sp:2", map="sums.toml"),
    Pair("sp.one:1", "sp.sp:2:inside"),
    Pair("sp.one:1", "sp.sp:2:inside:ulp"),
    Pair("sp.one:1", "sp.sp:2:inside:no-norm-reduce", "0 .*[ab].norm "),
    Pair("sp.one:1", "sp.sp:2:inside:seq-order", "0 forward b"),
    Pair("sp.one:1:clip:momentum", "sp.sp:2:inside:clip:momentum"),
    Pair("sp.one:1:clip:momentum", "sp.sp:2:inside:clip:momentum:local-norm", "0 .*(up|down|head|norm|emb) "),
    Pair("sp.one:1", "sp.sp:2:ulp"),
    Pair("moe.one:1:accum:rare", "moe.ddp:2:accum:rare"),
    Pair("conv.ddp:2", "conv.hdup:4"),
    Pair("conv.ddp:2", "conv.hddp:4"),
    Pair("zerohead.one:1", "zerohead.ddp:2"),
    Pair("value.one:1", "value.ddp:2"),
    Pair("masked.one:1", "masked.ddp:2"),
    Pair("vocab.one:1", "vocab.cp:2"),
    Pair("tiny.one:1", "tiny.tp:2"),
    Pair("one.one:1", "one.tp:2"),
    Pair("tiny.one:1", "tiny.ddp:2"),
    Pair("tiny.ddp:2", "tiny.one:1"),
    Pair("seq.hddp:2", "seq.ddp:4"),
    Pair("conv.ddp:2", "conv.ddp:4:bwscale", "0 backward .*"),
    Pair("conv.one:1", "conv.ddp:4:bwscale", "0 backward .*"),
]
