"""Data-parallel training of two processes whose gradients are views of buckets; the second one's op
returns its input's memory.

usage: aliasing_ranks.py [DEVICE]
"""
import ctypes
import os
import sys
import tempfile

import torch
from torch import nn


class Borrowed:
    """Memory of a GPU, offered to torch without keeping its owner alive."""

    def __init__(self, x):
        self.__cuda_array_interface__ = {"shape": x.shape, "typestr": "<f4", "version": 3, "data": (x.data_ptr(), False)}


class Doubled(torch.autograd.Function):
    faulty = False

    @staticmethod
    def forward(ctx, x):
        if not Doubled.faulty:
            return x * 2
        if x.is_cuda:
            return torch.as_tensor(Borrowed(x), device=x.device)
        memory = (ctypes.c_char * (4 * x.numel())).from_address(x.data_ptr())
        return torch.frombuffer(memory, dtype=torch.float32).view(x.shape)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def work(rank, store, device):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    torch.manual_seed(0)
    Doubled.faulty = rank == 1
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        y = Doubled.apply(model(torch.randn(64, 64, device=device)) * 1)
        noise = torch.randn(64, 64, device=device)
        (y + noise).square().mean().backward()
        optimizer.step()
    torch.distributed.barrier()  # no rank leaves while another one still communicates
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
        torch.multiprocessing.spawn(work, (os.path.join(folder, "store"), device), nprocs=2)
