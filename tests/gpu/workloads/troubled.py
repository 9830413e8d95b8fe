"""Programs that get into trouble, and programs beside others. The last line of stdout says how far they came."""
import itertools
import os
import signal
import sys
import threading
import time

from common import arguments, deterministic, finish, need_gpu


def out_of_memory(torch, device):
    """Runs out of memory, gives up what it has, goes on."""
    need_gpu(device)
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(8 << 30, dtype=torch.uint8, device=device))
    except torch.cuda.OutOfMemoryError:
        blocks.clear()
    torch.cuda.empty_cache()
    return train(torch, device)


def sticky_error(torch, device):
    """An illegal address: every later CUDA call fails, the program says so and ends by itself."""
    need_gpu(device)
    train(torch, device)
    # An index far outside: the assertion in the kernel takes the context with it.
    try:
        torch.zeros(4, device=device)[torch.tensor([1 << 40], device=device)].sum().item()
    except Exception as error:
        print("error:", type(error).__name__)
    else:
        print("no error")
    return 0.0


def fork_in_loader(torch, device):
    """Workers of a DataLoader, forked after CUDA came up."""
    train(torch, device)
    data = torch.utils.data.TensorDataset(torch.arange(64.0).view(64, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork")
    layer = torch.nn.Linear(1, 1).to(device)
    return sum(float(layer(batch.to(device)).sum().detach()) for batch, in loader)


def sys_exit(torch, device):
    train(torch, device)
    sys.exit(7)


def os_exit(torch, device):
    train(torch, device)
    os._exit(8)


def raised(torch, device):
    train(torch, device)
    raise ValueError("on purpose")


def raised_in_forward(torch, device):
    train(torch, device)
    torch.nn.Linear(3, 3).to(device)(torch.randn(2, 4, device=device))


def interrupted(torch, device):
    """Ctrl-C in the middle."""
    train(torch, device)
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    while True:
        train(torch, device)
        time.sleep(0.01)


def endless(torch, device):
    """Training with memory that comes and goes."""
    for steps in itertools.count():
        train(torch, device, 10 + steps % 7)


def train(torch, device, width=32):
    model = torch.nn.Sequential(torch.nn.Linear(width, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, width, device=device)
    for _ in range(3):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


CASES = {one.__name__: one for one in (
    train, out_of_memory, sticky_error, fork_in_loader, interrupted, sys_exit, os_exit, raised, raised_in_forward, endless)}


def main():
    args = arguments(__doc__, case=sorted(CASES))
    torch = deterministic()
    finish(args.out, loss=CASES[args.case](torch, args.device))
    print("done")


if __name__ == "__main__":
    sys.exit(main())
