"""Processes over gloo that call collectives in one of the ways in which programs do. Prints rank 0's results.

usage: collectives.py WAY RANKS

WAY: calls (each operation of torch.distributed), functional, async, ddp, ddp-bucket-view, fully_shard, tensor,
pipeline, experts, nan (rank 1's gradient has one), late (the last rank leaves before the last call),
tags, from-any
"""
import hashlib
import os
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch import nn

warnings.simplefilter("ignore", FutureWarning)  # some names are old in new releases
results = []


def keep(*tensors):
    for tensor in tensors:
        results.append(hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()[:12])


def calls(rank, size):
    """Each operation once, in the group of all and in one of two."""
    x = torch.arange(6, dtype=torch.float32) + rank
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        y = x.clone()
        dist.all_reduce(y, op=op)
        keep(y)
    y = x.clone()
    dist.broadcast(y, src=1)
    z = x.clone()
    dist.reduce(z, dst=0)
    keep(y, z)
    parts = [torch.empty(6) for _ in range(size)]
    dist.all_gather(parts, x)
    whole = torch.empty(6 * size)
    dist.all_gather_into_tensor(whole, x)
    keep(*parts, whole)
    mine = torch.empty(6)
    dist.reduce_scatter(mine, [x * i for i in range(size)])
    other = torch.empty(6)
    dist.reduce_scatter_tensor(other, torch.cat([x] * size))
    keep(mine, other)
    dist.gather(x, parts if rank == 0 else None, dst=0)
    dist.scatter(mine, [x + i for i in range(size)] if rank == 1 else None, src=1)
    keep(mine)
    flat = torch.empty(6 * size)
    dist.all_to_all_single(flat, torch.cat([x + i for i in range(size)]))
    keep(flat)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(y, 1)
    elif rank == 1:
        dist.recv(y, 0)
        dist.send(x * 3, 0)
    keep(y)
    pair = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, size - 1 - rank), dist.P2POp(dist.irecv, z, size - 1 - rank)])
        for work in works:
            work.wait()
        dist.all_reduce(z, group=pair)
        keep(z)
    dist.barrier()
    things = [None] * size
    dist.all_gather_object(things, {"rank": rank})
    assert [one["rank"] for one in things] == list(range(size))


def functional(rank, size):
    import torch.distributed._functional_collectives as functional_collectives

    x = torch.ones(5) * (rank + 1)
    y = functional_collectives.all_reduce(x, "sum", dist.group.WORLD)
    keep(y + 1)
    compiled = torch.compile(lambda t: functional_collectives.all_reduce(t * 2, "sum", dist.group.WORLD) + 1, fullgraph=True)
    keep(compiled(x))


def asynchronous(rank, size):
    """Several calls are under way at once; each result is overwritten directly after its wait."""
    tensors = [torch.full((100,), float(rank + i)) for i in range(4)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work, tensor in zip(reversed(works), reversed(tensors)):
        work.wait()
        keep(tensor)
        tensor.zero_()
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor.add_(rank))
    keep(*tensors)


def train(model, rank, steps=3, width=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(3, width)).square().mean()
        loss.backward()
        optimizer.step()
        keep(loss)


def block(width=4):
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, width))


def ddp(rank, size, **options):
    torch.manual_seed(rank)  # DDP sends rank 0's weights to all
    train(nn.parallel.DistributedDataParallel(nn.Sequential(block(), nn.BatchNorm1d(4), block()), **options), rank)


def fully_sharded(rank, size):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(block(), block())
    for part in model:
        fully_shard(part)
    train(fully_shard(model), rank)


def tensor_parallel(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model = block()
    mesh = init_device_mesh("cpu", (size,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(model, 0)


def pipeline(rank, size):
    """Each rank has a block, and hands on what it made."""
    torch.manual_seed(rank)
    model = block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x = torch.ones(3, 4)
        if rank > 0:
            dist.recv(x, rank - 1)
        y = model(x.requires_grad_())
        if rank < size - 1:
            dist.send(y.detach(), rank + 1)
            gradient = torch.empty(3, 4)
            dist.recv(gradient, rank + 1)
            y.backward(gradient)
        else:
            loss = y.square().mean()
            loss.backward()
            keep(loss)
        if rank > 0:
            dist.send(x.grad, rank - 1)
        optimizer.step()
        optimizer.zero_grad()
        keep(y)


def experts(rank, size):
    """Tokens go to the rank of their expert and back, by a call that autograd knows."""
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    torch.manual_seed(rank)
    expert = nn.Linear(4, 4)
    tokens = torch.randn(2 * size, 4, requires_grad=True)
    there = all_to_all_single_autograd(tokens, None, None, dist.group.WORLD)
    back = all_to_all_single_autograd(expert(there), None, None, dist.group.WORLD)
    back.square().mean().backward()
    keep(back, tokens.grad, expert.weight.grad)


def nan(rank, size):
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(block())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(4):
        optimizer.zero_grad()
        x = torch.randn(3, 4)
        y = model(x)
        if step == 2 and rank == 1:
            y = y * torch.tensor([1.0, 1.0, 1.0, float("inf")]) * 0.0
        y.square().mean().backward()
        optimizer.step()


def late(rank, size):
    x = torch.ones(3)
    for _ in range(3):
        dist.all_reduce(x)
    if rank != size - 1:
        work = dist.all_reduce(x, async_op=True)
        del work
    os._exit(0)


def tags(rank, size):
    """Messages that are received in another order than they are sent, and from any source: of which each rank has sent one,
    and of which the second is waited for first."""
    if rank == 0:
        for step in range(3):
            works = [dist.isend(torch.full((5,), 10.0 * step + tag), 1, tag=tag) for tag in (4, 7)]
            for work in works:
                work.wait()
    elif rank == 1:
        for _ in range(3):
            for tag in (7, 4):
                dist.recv(torch.empty(5), 0, tag=tag)
    dist.barrier()
    if rank == 0:
        x = torch.empty(5)
        sources = [dist.recv(x, tag=3) for _ in range(2 * (size - 1))]
        keep(torch.tensor(sorted(sources)))
    else:
        for turn in range(2):
            dist.send(torch.full((5,), 100.0 * rank + turn), 0, tag=3)


def from_any(rank, size):
    """Two receptions from any source are on their way, and the second is waited for first."""
    if rank == 0:
        tensors = [torch.empty(5) for _ in range(2)]
        works = [dist.irecv(tensor) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        keep(sum(tensors))
    elif rank < 3:
        dist.send(torch.full((5,), float(rank)), 0)


WAYS = {"calls": calls, "functional": functional, "async": asynchronous, "ddp": ddp,
        "ddp-bucket-view": lambda *a: ddp(*a, gradient_as_bucket_view=True), "fully_shard": fully_sharded,
        "tensor": tensor_parallel, "pipeline": pipeline, "experts": experts, "nan": nan, "late": late,
        "tags": tags, "from-any": from_any}


def work(rank, way, size, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
    WAYS[way](rank, size)
    if rank == 0:
        print(" ".join(results), flush=True)
    dist.barrier()  # no rank leaves while another one still communicates
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        # Ranks that import nothing anew; those of ddp.py and sharded.py are spawned.
        torch.multiprocessing.start_processes(work, (sys.argv[1], int(sys.argv[2]), os.path.join(folder, "store")),
                                              nprocs=int(sys.argv[2]), start_method="fork")
