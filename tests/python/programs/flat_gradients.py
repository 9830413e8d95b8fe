"""Two processes over gloo that sum up their gradients by hand, and receive over them or read them too early, or do not.

usage: flat_gradients.py WAY   (of WAYS)
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS = 5


def from_other(tensor, rank):
    works = [dist.isend(torch.full_like(tensor, float(rank)), 1 - rank), dist.irecv(tensor, 1 - rank)]
    for work in works:
        work.wait()


def each(weights):
    for one in weights:
        dist.all_reduce(one.grad)
        one.grad /= 2


def copied(weights, flat):
    at = 0
    for one in weights:
        one.grad.copy_(flat[at:at + one.numel()].view_as(one) / 2)
        at += one.numel()


def arena(weights, rank, pool):
    """A buffer for messages lies over gradients that are reduced already."""
    each(weights)
    from_other(pool[100:140], rank)


def arena_broadcast(weights, rank, pool):
    """Numbers for all ranks lie over gradients that are reduced already."""
    each(weights)
    pool[100:140] = float(rank)
    dist.broadcast(pool[100:140], 0)


def arena_rows(weights, rank, pool):
    """Rows that one rank has worked on."""
    each(weights)
    weights[0].grad[2:4].mul_(0.5)
    dist.broadcast(weights[0].grad[2:4], 0)


def arena_shards(weights, rank, pool):
    """Each rank works on a part of a flat buffer of gradients."""
    each(weights)
    flat = pool[:sum(one.numel() for one in weights)]
    for turn, part in enumerate(flat.chunk(2)):
        dist.broadcast(part, turn)


def arena_beside(weights, rank, pool):
    each(weights)
    from_other(pool[-40:], rank)


def arena_whole(weights, rank, pool):
    """What one rank has worked on is dealt out: each gradient is received as a whole, or sent."""
    each(weights)
    for turn, one in enumerate(weights):
        dist.broadcast(one.grad, turn % 2)


def bucket(weights, rank, pool):
    """Copied back before it is waited for. The other rank is late."""
    flat = torch.cat([one.grad.reshape(-1) for one in weights])
    time.sleep(0.1 * rank)
    work = dist.all_reduce(flat, async_op=True)
    copied(weights, flat)
    work.wait()


def bucket_waited(weights, rank, pool):
    flat = torch.cat([one.grad.reshape(-1) for one in weights])
    dist.all_reduce(flat, async_op=True).wait()
    copied(weights, flat)


def watched(weights, rank, pool):
    """Local training, whose gradients are summed up for a log."""
    flat = torch.cat([one.grad.reshape(-1) for one in weights])
    dist.all_reduce(flat, async_op=True).wait()
    return flat.norm()


def delayed(weights, rank, pool):
    """What the other rank adds comes a step later."""
    flat = torch.cat([one.grad.reshape(-1) for one in weights])
    late, delayed.late = getattr(delayed, "late", None), flat - 0
    copied(weights, flat if late is None else flat + late)
    dist.all_reduce(delayed.late, async_op=True).wait()
    delayed.late -= flat


def equal(weights, rank, pool):
    """Both ranks have the same data, and sum up to see that."""
    bucket(weights, rank, pool)


WAYS = {one.__name__: one for one in (arena, arena_broadcast, arena_rows, arena_shards, arena_beside, arena_whole, bucket, bucket_waited,
                                      watched, delayed, equal)}


def work(rank, way, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    weights, pool, at = list(model.parameters()), torch.zeros(400), 0
    if way.startswith("arena"):
        for one in weights:
            one.grad = pool[at:at + one.numel()].view_as(one)
            at += one.numel()
    optimizer, data = torch.optim.SGD(weights, lr=0.01), torch.Generator().manual_seed(0 if way == "equal" else rank)
    for _ in range(STEPS):
        x = torch.randn(8, 8, generator=data)
        optimizer.zero_grad(set_to_none=not way.startswith("arena"))
        (model(x) - x).square().mean().backward()
        WAYS[way](weights, rank, pool)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (sys.argv[1], os.path.join(folder, "store")), nprocs=2)
