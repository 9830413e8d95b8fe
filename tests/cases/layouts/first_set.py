"""One training in several layouts: on one rank, with data parallelism, fully sharded, with tensor parallelism by DTensors and by
hand, and faults of these."""
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from pair import Pair

WIDTH, HEADS, WORDS, ROWS, LENGTH, STEPS = 32, 4, 50, 8, 16, 3


class Copied(torch.autograd.Function):
    """The input of a layer whose columns are divided: its gradient is the sum of those of the ranks."""

    @staticmethod
    def forward(ctx, x, reduced):
        ctx.reduced = reduced
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        if ctx.reduced:
            dist.all_reduce(grad)
        return grad, None


class Reduced(torch.autograd.Function):
    """The output of a layer whose rows are divided: the sum of those of the ranks."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Column(nn.Linear):
    """The rank's part of the rows of a weight."""

    def __init__(self, whole, rank, size, faults):
        super().__init__(whole.in_features, whole.out_features // size, dtype=whole.weight.dtype)
        self.reduced = "no-reduction" not in faults
        self.load_state_dict({"weight": whole.weight.chunk(size)[rank], "bias": whole.bias.chunk(size)[rank]})

    def forward(self, x):
        return super().forward(Copied.apply(x, self.reduced))


class Row(nn.Linear):
    """The rank's part of the columns of a weight; the bias is added once."""

    def __init__(self, whole, rank, size, faults):
        super().__init__(whole.in_features // size, whole.out_features, dtype=whole.weight.dtype)
        self.everywhere = "bias-everywhere" in faults
        self.load_state_dict({"weight": whole.weight.chunk(size, 1)[rank], "bias": whole.bias})

    def forward(self, x):
        if self.everywhere:
            return Reduced.apply(super().forward(x))
        return Reduced.apply(nn.functional.linear(x, self.weight)) + self.bias


class Attention(nn.Module):
    def __init__(self, fused):
        super().__init__()
        whole = nn.Linear(WIDTH, 3 * WIDTH)
        if fused:
            self.qkv_proj = whole
        else:
            with torch.random.fork_rng():
                parts = {name + "_proj": nn.Linear(WIDTH, WIDTH) for name in "qkv"}
            for (name, part), weight, bias in zip(parts.items(), whole.weight.chunk(3), whole.bias.chunk(3)):
                part.load_state_dict({"weight": weight, "bias": bias})
                self.add_module(name, part)
        self.o_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        parts = self.qkv_proj(x).chunk(3, -1) if hasattr(self, "qkv_proj") else (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (part.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in parts)
        y = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v
        return self.o_proj(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.norm_1, self.attn = nn.LayerNorm(WIDTH), Attention(fused)
        self.norm_2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attn(self.norm_1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))


class Net(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.emb = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(fused) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.emb(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


COLUMNS, ROWS_OF = ("attn.q_proj", "attn.k_proj", "attn.v_proj", "up"), ("attn.o_proj", "down")


def divided(net, layout, rank, size, faults):
    """@return the network in a layout, and the number of parts of the batch."""
    if layout == "ddp":
        net = nn.parallel.DistributedDataParallel(net)
        if "gradients-summed" in faults:
            net.register_comm_hook(None, lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(
                lambda done: done.value()[0]))
        return net, size
    if layout == "fsdp":
        mesh = init_device_mesh("cpu", (size,))
        for block in net.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(net, mesh=mesh)
        return net, size
    if layout in ("tp", "tp+fsdp"):
        mesh = init_device_mesh("cpu", (size // 2, 2) if layout == "tp+fsdp" else (1, size), mesh_dim_names=("dp", "tp"))
        plan = {name: ColwiseParallel() for name in COLUMNS} | {name: RowwiseParallel() for name in ROWS_OF}
        for block in net.blocks:
            parallelize_module(block, mesh["tp"], plan)
        if layout == "tp":
            return net, 1
        for block in net.blocks:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(net, mesh=mesh["dp"])
        return net, size // 2
    if layout == "hand":
        for block in net.blocks:
            for names, kind in ((COLUMNS, Column), (ROWS_OF, Row)):
                for name in names:
                    holder, _, last = name.rpartition(".")
                    setattr(block.get_submodule(holder), last, kind(block.get_submodule(name), rank, size, faults))
    return net, 1


def train(layout, rank, size, faults):
    """One rank of a training. `faults`: names of faults, and `fused`, `masked`, `bf16`."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if "bf16" in faults else torch.float32
    net, parts = divided(Net("fused" in faults).to(dtype), layout, rank, size, faults)
    part = rank * parts // size
    if "other-shard" in faults and rank == 1:
        with torch.no_grad():
            net.blocks[1].up.weight.mul_(1.05)
    if "row-scaled" in faults:  # inside the layer, before the sum over ranks
        net.blocks[1].down.register_forward_pre_hook(lambda _, given: (given[0] * 1.05,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        words, labels = (torch.randint(0, WORDS, (ROWS, LENGTH), generator=batches) for _ in range(2))
        if "masked" in faults or "local-counts" in faults:
            labels[:ROWS // 2, 3:] = -100  # as padding is: the first half of the batch counts less
        count = int((labels >= 0).sum())
        of_data = 0 if "same-data" in faults else part
        words, labels = (t.chunk(parts)[of_data] for t in (words, labels))
        if "replica" in faults and step == 1 and rank == 1:
            with torch.no_grad():
                net.module.head.weight.mul_(1.01)
        logits = net(words)
        if "scale" in faults and step == 1:
            logits = logits * 1.02
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        # Gradients are averaged over the parts of the batch.
        loss = loss / int((labels >= 0).sum()) if "local-counts" in faults else loss * parts / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


PAIRS = [
    Pair("one:1", "ddp:2"),
    Pair("one:1", "fsdp:2"),
    Pair("one:1", "tp:2"),
    Pair("one:1", "hand:2"),
    Pair("one:1", "tp+fsdp:4"),
    Pair("one:1", "one:1:fused", told=True),
    Pair("fsdp:2", "tp:2"),
    Pair("tp+fsdp:4", "ddp:2"),
    Pair("hand:2", "one:1:fused"),
    Pair("one:1:masked", "ddp:2:masked"),
    Pair("one:1:bf16", "tp:2:bf16", full=True),
    Pair("one:1:bf16", "ddp:2:bf16", full=True),
    Pair("fsdp:2", "fsdp:4", full=True),
    Pair("one:1", "hand:4", full=True),
    Pair("one:1", "ddp:2:gradients-summed", "0 backward .* grad:"),
    Pair("one:1", "ddp:2:same-data", "0 data  input:0"),
    Pair("one:1", "ddp:2:replica", "1 forward head output:0"),
    # The scale of a loss by the counts of its rank: Megatron-LM#7452, item 3.
    Pair("one:1:masked", "ddp:2:local-counts", "0 \\S+ .*loss"),
    Pair("one:1", "fsdp:2:scale", "1 .* (loss|input:0)"),
    Pair("one:1", "tp:2:other-shard", "0 forward blocks.1.up param:weight"),
    Pair("one:1", "tp:2:row-scaled", "0 forward blocks.1.down output:0"),
    Pair("one:1", "tp:4:row-scaled", "0 forward blocks.1.down output:0", full=True),
    Pair("one:1", "hand:2:bias-everywhere", "0 forward blocks.0.attn.o_proj output:0"),
    Pair("one:1", "hand:2:no-reduction", "0 backward blocks.1\\S* grad"),
    Pair("ddp:2", "hand:2:no-reduction", "0 backward blocks.1\\S* grad", told=True),
    Pair("hand:2", "fsdp:2:scale", "1 .* (loss|input:0)", full=True),
    Pair("one:1:bf16", "hand:2:bf16:bias-everywhere", "0 forward blocks.0.attn.o_proj output:0", full=True),
]
