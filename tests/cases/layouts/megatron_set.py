"""A model as Hugging Face's transformers has it against one as Megatron Core has it, whose layers tensor parallelism divides, and
whose activations are [sequence, batch, width]: compared with the map that is shipped."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from pair import Pair

WIDTH, HEADS, GROUPS, HEAD, INNER, WORDS, LAYERS, STEPS = 32, 4, 2, 8, 64, 64, 2, 3
EPS = 1e-6


def weights():
    """@return all weights by name, the same on each rank."""
    torch.manual_seed(0)
    sizes = {"words": (WORDS, WIDTH), "head": (WORDS, WIDTH)}
    for i in range(LAYERS):
        sizes |= {f"{i}.q": (HEADS * HEAD, WIDTH), f"{i}.k": (GROUPS * HEAD, WIDTH), f"{i}.v": (GROUPS * HEAD, WIDTH),
                  f"{i}.o": (WIDTH, HEADS * HEAD), f"{i}.gate": (INNER, WIDTH), f"{i}.up": (INNER, WIDTH), f"{i}.down": (WIDTH, INNER)}
    return {name: torch.randn(size) * 0.1 for name, size in sizes.items()}


def attention(q, k, v):
    """@return the causal attention of tensors [batch, head, sequence, width]."""
    k, v = (t.repeat_interleave(HEADS // GROUPS, 1) for t in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return F.rms_norm(x, (WIDTH,), self.weight, EPS)


def linear(weight):
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight.clone())
    return layer


class HfAttention(nn.Module):
    def __init__(self, of, i):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (linear(of[f"{i}.{name}"]) for name in "qkvo")

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(attention(q, k, v).transpose(1, 2).flatten(-2))


class HfMlp(nn.Module):
    def __init__(self, of, i):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (linear(of[f"{i}.{name}"]) for name in ("gate", "up", "down"))

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class HfLayer(nn.Module):
    def __init__(self, of, i):
        super().__init__()
        self.self_attn, self.mlp = HfAttention(of, i), HfMlp(of, i)
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class HfModel(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.embed_tokens.weight = nn.Parameter(of["words"].clone())
        self.layers, self.norm = nn.ModuleList(HfLayer(of, i) for i in range(LAYERS)), Norm()

    def forward(self, words):
        x = self.embed_tokens(words)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Hf(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.model, self.lm_head = HfModel(of), linear(of["head"])

    def forward(self, words):
        return self.lm_head(self.model(words))


class Part:
    """The shard of a rank: its part of each weight, and its faults."""

    def __init__(self, rank, size, faults):
        self.rank, self.size, self.faults = rank, size, faults

    def of(self, weight, dimension=0):
        return weight.chunk(self.size, dimension)[self.rank]


def summed(x):
    if dist.is_initialized():
        dist.all_reduce(x)
    return x


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return summed(grad.contiguous())


class Reduced(torch.autograd.Function):
    """The sum of a tensor over all ranks. With one rank it is the tensor itself."""

    @staticmethod
    def forward(ctx, x):
        return summed(x.clone())

    @staticmethod
    def backward(ctx, grad):
        return grad


class Column(nn.Module):
    """A column-parallel linear layer. As in Transformer Engine it may include the norm before it."""

    def __init__(self, weight, with_norm=False):
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        if with_norm:
            self.layer_norm_weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        if hasattr(self, "layer_norm_weight"):
            x = F.rms_norm(x, (WIDTH,), self.layer_norm_weight, EPS)
        return F.linear(Copied.apply(x), self.weight), None


class Row(nn.Module):
    """A row-parallel linear layer: each rank's terms of the product, summed over ranks."""

    def __init__(self, weight, extra=0.0):
        super().__init__()
        self.weight, self.extra = nn.Parameter(weight.clone()), extra

    def forward(self, x):
        y = F.linear(x, self.weight) + self.extra
        return Reduced.apply(y), None


class MegatronAttention(nn.Module):
    def __init__(self, of, i, part):
        super().__init__()
        q, k, v = (of[f"{i}.{name}"].view(GROUPS, -1, WIDTH) for name in "qkv")
        qkv = part.of(torch.cat([q, k, v], 1)).reshape(-1, WIDTH)
        if "qkv-scaled" in part.faults and i == 1 and part.rank == 1:
            qkv = qkv * 1.05
        self.groups = GROUPS // part.size
        self.linear_qkv = Column(qkv, "te" in part.faults)
        self.linear_proj = Row(part.of(of[f"{i}.o"], 1), 0.05 if "bias-everywhere" in part.faults and i == 1 else 0.0)

    def forward(self, x):
        mixed = self.linear_qkv(x)[0].unflatten(-1, (self.groups, -1))
        q, k, v = mixed.split([HEADS // GROUPS * HEAD, HEAD, HEAD], -1)
        q = q.flatten(-2).unflatten(-1, (-1, HEAD))
        return self.linear_proj(attention(*(t.permute(1, 2, 0, 3) for t in (q, k, v))).permute(2, 0, 1, 3).flatten(-2))


class MegatronMlp(nn.Module):
    def __init__(self, of, i, part):
        super().__init__()
        self.linear_fc1 = Column(torch.cat([part.of(of[f"{i}.gate"]), part.of(of[f"{i}.up"])]), "te" in part.faults)
        self.linear_fc2 = Row(part.of(of[f"{i}.down"], 1))

    def forward(self, x):
        gate, up = self.linear_fc1(x)[0].chunk(2, -1)
        return self.linear_fc2(F.silu(gate) * up)


class MegatronLayer(nn.Module):
    def __init__(self, of, i, part):
        super().__init__()
        norm = nn.Identity if "te" in part.faults else Norm
        self.input_layernorm, self.self_attention = norm(), MegatronAttention(of, i, part)
        self.pre_mlp_layernorm, self.mlp = norm(), MegatronMlp(of, i, part)

    def forward(self, x):
        x = x + self.self_attention(self.input_layernorm(x))[0]
        return x + self.mlp(self.pre_mlp_layernorm(x))[0]


class MegatronDecoder(nn.Module):
    def __init__(self, of, part):
        super().__init__()
        self.layers, self.final_layernorm = nn.ModuleList(MegatronLayer(of, i, part) for i in range(LAYERS)), Norm()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.final_layernorm(x)


class MegatronWords(nn.Module):
    def __init__(self, of, part):
        super().__init__()
        self.weight, self.first = nn.Parameter(part.of(of["words"]).clone()), part.rank * (WORDS // part.size)

    def forward(self, words):
        own = words - self.first
        others = (own < 0) | (own >= len(self.weight))
        x = F.embedding(own.masked_fill(others, 0), self.weight).masked_fill(others[..., None], 0)
        return Reduced.apply(x)


class MegatronEmbedding(nn.Module):
    def __init__(self, of, part):
        super().__init__()
        self.word_embeddings = MegatronWords(of, part)

    def forward(self, words):
        return self.word_embeddings(words).transpose(0, 1).contiguous()


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.width = x.shape[-1]
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx, grad):
        return grad.split(ctx.width, -1)[dist.get_rank()].contiguous()


class Megatron(nn.Module):
    def __init__(self, of, part):
        super().__init__()
        self.embedding, self.decoder = MegatronEmbedding(of, part), MegatronDecoder(of, part)
        self.output_layer = Column(part.of(of["head"]))

    def forward(self, words):
        logits = self.output_layer(self.decoder(self.embedding(words)))[0]
        return (Gathered.apply(logits) if dist.is_initialized() else logits).transpose(0, 1).contiguous()


def train(layout, rank, size, words):
    of = weights()
    net = Hf(of) if layout == "hf" else Megatron(of, Part(rank, size, words))
    make = torch.optim.SGD if "sgd" in words else torch.optim.AdamW
    optimizer = make(net.parameters(), lr=1e-2)
    batches = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        tokens = torch.randint(0, WORDS, (4, 9), generator=batches)
        optimizer.zero_grad()
        F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()


MAP = "../../../tools/diff/maps/megatron-lm.toml"
PAIRS = [
    Pair("hf:1", "megatron:2", map=MAP, told=True),
    Pair("hf:1", "megatron:1", map=MAP, told=True),
    Pair("hf:1", "megatron:2:te", map=MAP, told=True, full=True),
    Pair("hf:1:sgd", "megatron:2:sgd", map=MAP, told=True, full=True),
    # Without a map: one program, with tensor parallelism and without, whose sums an autograd function makes.
    Pair("megatron:1", "megatron:2"),
    Pair("hf:1", "megatron:2:bias-everywhere", "0 forward model.layers.1.self_attn.o_proj output:0", map=MAP, told=True),
    Pair("hf:1", "megatron:2:qkv-scaled", "0 forward model.layers.1.self_attn.linear_qkv param:weight", map=MAP, told=True,
         full=True),
    Pair("hf:1", "megatron:2:te:qkv-scaled", "0 forward model.layers.1.self_attn.linear_qkv param:weight", map=MAP, told=True,
         full=True),
]
