"""Unwritten memory, which CONVTRACE_POISON makes visible, and memory written by others, which it leaves alone.

usage: poison.py FILE    a file that is mapped
"""
import sys

import numpy
import torch

torch.manual_seed(0)


def function(name, forward):
    return type(name, (torch.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(lambda ctx, gradient: gradient)})


def half(ctx, x):
    y = torch.empty_like(x)
    y[:32] = x[:32]
    return y


def half_of(dtype):
    def forward(ctx, x):
        y = torch.empty(x.shape, dtype=dtype)
        y[:32] = x[:32].to(dtype)
        return y
    return forward


Half = function("Half", half)
Indices = function("Indices", half_of(torch.int64))
Bytes = function("Bytes", half_of(torch.uint8))
Narrow = function("Narrow", half_of(torch.float8_e4m3fn))
Brain = function("Brain", half_of(torch.bfloat16))
Whole = function("Whole", lambda ctx, x: x * 2)
Labels = function("Labels", lambda ctx, x: torch.full((64,), -1))
Nothings = function("Nothings", lambda ctx, x: torch.full((64,), float("nan")).to(torch.float8_e4m3fn))

x = torch.ones(64, 64)
print("written", int(Half.apply(x).eq(1).sum()))
print("others", [int(op.apply(x)[:32].float().sum()) for op in (Indices, Bytes, Narrow, Brain)])
print("passed on", bool(Whole.apply(torch.empty(64)).isnan().any()))
print("whole", float(Whole.apply(x).sum()), float(torch.zeros(1000).sum()), int(Labels.apply(x).sum()),
      bool(Nothings.apply(x).isnan().all()))

for number in range(50):
    Reuses = function("Reuses%d" % number, half)  # each is told: none is the repetition of another
    y = Whole.apply(x)
    address = y.data_ptr()
    del y
    if Reuses.apply(x).data_ptr() == address:
        break

# Files that are mapped are reported as memory, too, and are not to be filled.
numpy.arange(1000, dtype=numpy.float32).tofile(sys.argv[1])
mapped = torch.from_file(sys.argv[1], shared=True, size=1000)
print("mapped", float(mapped.sum()))
del mapped
print("file", float(numpy.fromfile(sys.argv[1], dtype=numpy.float32).sum()))
shared = torch.arange(100.0).share_memory_()
print("shared", float(shared.sum()))
data = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, num_workers=1)
print("loaded", [batch.tolist() for batch in data])
