"""Data-parallel training of two processes whose gradients are views of buckets; the second one's op
returns its input's memory.

usage: aliasing_ranks.py
"""
import ctypes
import os
import tempfile

import torch
from torch import nn


class Doubled(torch.autograd.Function):
    faulty = False

    @staticmethod
    def forward(ctx, x):
        if not Doubled.faulty:
            return x * 2
        memory = (ctypes.c_char * (4 * x.numel())).from_address(x.data_ptr())
        return torch.frombuffer(memory, dtype=torch.float32).view(x.shape)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def work(rank, store):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    torch.manual_seed(0)
    Doubled.faulty = rank == 1
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        y = Doubled.apply(model(torch.randn(64, 64)) * 1)
        noise = torch.randn(64, 64)
        (y + noise).square().mean().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (os.path.join(folder, "store"),), nprocs=2)
