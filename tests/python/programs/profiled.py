"""A training script that profiles itself, and prints its losses and what the profiler saw of it."""
import collections
import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = collections.Counter()

    def count(profiler):
        for event in profiler.events():
            seen[event.name] += 1
            # Over a whole step it also depends on older blocks: their frees have a size only where
            # CPU memory was reported before the profile began, as under convtrace.
            if not event.name.startswith("ProfilerStep"):
                seen["memory of " + event.name] += event.cpu_memory_usage

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True,
                 schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=count) as profiler:
        for _ in range(4):
            loss = model(torch.randn(5, 8)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item().hex())
            profiler.step()
    for name, number in sorted(seen.items()):
        print(name, number)
    sys.exit(0 if seen["aten::addmm"] and seen["memory of aten::addmm"] else 1)


main()
