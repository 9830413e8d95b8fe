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
from second_calls import Copied
from second_models import FAMILIES, GatherMod, RowInside, RowScatter, VEmb, VHead

STEPS = 3


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
