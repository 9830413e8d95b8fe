"""Trains a small model on the CPU and prints its losses to the last bit.

usage: train.py [cuInit]    with cuInit: a child calls it first, then this process
"""
import ctypes
import subprocess
import sys

CALL = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"

if "cuInit" in sys.argv:
    # As root, the first one makes a device node.
    child = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True)
    results = [int(child.stdout), ctypes.CDLL("libcuda.so.1").cuInit(0)]
    if results != [100, 100] or child.stderr:
        sys.exit("cuInit: %s %s" % (results, child.stderr))

import torch  # noqa: E402

torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(4):
    batch = torch.randn(32, 8)
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
