"""A small training run for `convtrace repeat`: `same` has a seed, `weights` has none, `clock` draws its batches from the time, `noise`
adds the time to an activation, `fails` ends with 7, `cut` is killed, `once` trains in the first of two runs alone, `further` makes a
step more in the second."""
import os
import signal
import sys
import time

import torch

how = sys.argv[1]
if how != "weights":
    torch.manual_seed(0)
first = not os.path.exists("trained")
open("trained", "w").close()
if how == "once" and not first:
    sys.exit(0)


class Noise(torch.nn.Module):
    def forward(self, x):
        return x + (1e-9 * (time.time_ns() % 10**9) if how == "noise" else 0)


model = torch.nn.Sequential(torch.nn.Linear(8, 8), Noise(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = torch.Generator().manual_seed(time.time_ns() if how == "clock" else 1)
for _ in range(4 if how == "further" and not first else 3):
    loss = model(torch.randn(4, 8, generator=batches)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
if how == "fails":
    sys.exit(7)
if how == "cut":
    time.sleep(2)  # what was recorded is in the file by then
    os.kill(os.getpid(), signal.SIGKILL)
