"""Training of two processes over gloo, in one of the ways in which PyTorch shards a model. Prints rank 0's losses.

usage: sharded.py fully_shard|fsdp|fsdp-flat|zero
"""
import os
import sys
import tempfile

import torch
from torch import nn


def block():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


def plain():
    return nn.Sequential(block(), block(), nn.Linear(4, 2))


def sharded(way):
    torch.manual_seed(0)
    model = plain()
    if way == "fully_shard":
        from torch.distributed.fsdp import fully_shard
        for part in model[:2]:
            fully_shard(part)
        fully_shard(model)
    elif way.startswith("fsdp"):
        from torch.distributed.fsdp import FullyShardedDataParallel
        options = {"device_id": torch.device("cpu"), "use_orig_params": way == "fsdp"}
        for number in range(2):
            model[number] = FullyShardedDataParallel(model[number], **options)
        model = FullyShardedDataParallel(model, **options)
    else:
        model = nn.parallel.DistributedDataParallel(model)
    return model


def work(rank, way, store):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    model = sharded(way)
    if way == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(loss.item().hex(), flush=True)
    torch.distributed.barrier()  # no rank leaves while another one still communicates
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (sys.argv[1], os.path.join(folder, "store")), nprocs=2)
