"""Data-parallel training of two processes over gloo. Prints the bits of rank 0's result.

usage: ddp.py
"""
import hashlib
import os
import tempfile

import torch
from torch import nn


def work(rank, store):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank,
                                         world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
    if rank == 0:
        bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print(hashlib.sha256(bits).hexdigest(), flush=True)
    torch.distributed.barrier()  # no rank leaves while another one still communicates
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (os.path.join(folder, "store"),), nprocs=2)
