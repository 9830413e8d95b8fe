"""Programs of two ranks, which must agree: RANK and WORLD_SIZE say who it is, CHECK_STORE how they meet."""
import contextlib
import ctypes
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from parts import BATCH, STEPS, Classifier, load, sgd, vectors


@contextlib.contextmanager
def group():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{os.environ['CHECK_STORE']}", rank=rank, world_size=size)
    # The destructors of a group and of what DDP keeps of it join a thread that may wait for Python's lock, which they hold
    # (PyTorch 2.13): both stay.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
    yield rank
    dist.barrier()


def parallel(model):
    model = DistributedDataParallel(model)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(model.reducer))
    return model


def sampled(rank, count=BATCH * STEPS, seed=1):
    data = vectors(2 * count, seed)
    return load(data, shuffle=False, sampler=DistributedSampler(data, num_replicas=2, rank=rank, seed=3))


class Routed(Classifier):
    """Two experts, and a gate that weighs them."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(32, 2, bias=False), nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        weights = self.gate(x).softmax(1)
        return self.head(sum(weights[:, [i]] * torch.relu(expert(x)) for i, expert in enumerate(self.experts)))


def gate_not_reduced(faulty):
    """Gradients are averaged by hand, by a list that leaves the gate out."""
    with group() as rank:
        model = Routed()
        del model.blocks
        optimizer = sgd(model, 0.1)
        reduced = [p for name, p in model.named_parameters() if not (faulty and "gate" in name)]
        for x, y in sampled(rank):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            for p in reduced:
                dist.all_reduce(p.grad)
                p.grad /= 2
            optimizer.step()


def no_sync_misplaced(faulty):
    """Two batches make an update; the second is not averaged either."""
    with group() as rank:
        model = parallel(Classifier())
        optimizer = sgd(model, 0.1)
        for number, (x, y) in enumerate(sampled(rank, 2 * BATCH * STEPS)):
            last = number % 2 == 1
            with model.no_sync() if faulty or not last else contextlib.nullcontext():
                (F.cross_entropy(model(x), y) / 2).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()


def same_shard(faulty):
    """The sampler is given the local rank of a node, which is zero on every node."""
    with group() as rank:
        model = parallel(Classifier())
        optimizer = sgd(model, 0.1)
        for x, y in sampled(0 if faulty else rank):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
