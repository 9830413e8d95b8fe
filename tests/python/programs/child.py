"""Trains in a child process alone; the parent prints the bits of its result.

usage: child.py fork|spawn|forkserver
"""
import multiprocessing
import sys


def train(connection):
    import torch

    torch.manual_seed(5)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).square().sum().backward()
        optimizer.step()
    connection.send([value.hex() for value in model.weight.flatten().tolist()])


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    here, there = context.Pipe()
    process = context.Process(target=train, args=(there,))
    process.start()
    print(here.recv())
    process.join()
    sys.exit(process.exitcode)
