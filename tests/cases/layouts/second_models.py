"""Models of the second set, and their data."""

import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F

from second_calls import Copied, Gather, GatherSum, Reduced, ScatterSum


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
