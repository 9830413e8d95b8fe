"""Memory that is freed, and read afterwards: what CONVTRACE_QUARANTINE shows.

LIMIT in the environment: the program runs itself again with that much address space.
"""
import ctypes
import os
import resource
import sys

import torch

if "LIMIT" in os.environ:
    limit = int(os.environ.pop("LIMIT"))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.execv(sys.executable, [sys.executable] + sys.argv)


def same_memory(tensor):
    """Another tensor in that memory, which does not keep it."""
    data = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    return torch.frombuffer(data, dtype=torch.float32)


class Alias(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return same_memory(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


print("addresses", len({torch.ones(1000).data_ptr() for _ in range(100)}))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.reader = torch.nn.Identity()
        self.maker = torch.nn.Identity()

    def forward(self, x):
        y = Alias.apply(self.maker(x.clone()))
        self.reader(y)
        return y


with torch.no_grad():
    model = Model()
    y = model(torch.ones(1000))
    print("read", float(y.sum()) if float(y[0]) == float(y[0]) else "nan")

before = int(open("/proc/self/statm").read().split()[1])
for i in range(2000):
    torch.ones(50_000 + 100 * (i % 50))
print("grown", (int(open("/proc/self/statm").read().split()[1]) - before) * resource.getpagesize())
