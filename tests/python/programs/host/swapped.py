"""Sharded models that are converted when their training is over, which exchanges their parameters: FSDP2, tensor
parallelism, and conversions of torch.__future__. Prints what each rank sees.

usage: swapped.py RANKS
"""
import os
import sys
import tempfile

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2))


def fully_sharded(model, mesh):
    for layer in model[0], model[2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def tensor_parallel(model, mesh):
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def train(model, make):
    optimizer = make(model.parameters())
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return losses


def state(model):
    return [(name, type(p).__name__, str(p.dtype), float(p.detach().double().sum().full_tensor() if hasattr(p, "full_tensor")
                                                        else p.detach().double().sum()).hex()) for name, p in model.named_parameters()]


def work(rank, size, store, said):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    lines = []
    for shard in fully_sharded, tensor_parallel, lambda model, mesh: None:
        for make in lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.Adam(p, lr=0.01):
            model = mlp()
            shard(model, mesh)
            lines += [getattr(shard, "__name__", ""), *train(model, make)]
            model.to("cpu")
            lines += state(model)
            torch.__future__.set_swap_module_params_on_conversion(shard is not fully_sharded)
            model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
            lines += train(model, make)
            model.zero_grad()
            model.double()
            lines += state(model)
            torch.__future__.set_swap_module_params_on_conversion(False)
            model.to(torch.bfloat16)
            lines += state(model)
    with open("%s/%d" % (said, rank), "w") as file:
        print(*lines, sep="\n", file=file)
    torch.distributed.barrier()  # no rank leaves while another one still communicates
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    size = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        given = size, os.path.join(folder, "store"), folder
        if size == 1:
            work(0, *given)
        else:
            torch.multiprocessing.start_processes(work, given, nprocs=size, start_method="fork")
        for rank in range(size):
            print(rank, open("%s/%d" % (folder, rank)).read())
