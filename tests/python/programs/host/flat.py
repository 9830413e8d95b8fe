"""Measures the time of a step on its own thread beside many live objects. Prints for each kind of object the time before
there is any, with many, and after they are gone, in microseconds, the least of several bursts.

usage: flat.py KIND...
"""
import gc
import os
import sys
import threading
import time

import torch
from torch import nn

BURSTS, STEPS = 9, 12


def mlp():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def with_gradients(model):
    model(torch.ones(1, 3)).sum().backward()
    return model


def looked_at(model):
    with torch.no_grad():
        model(torch.ones(1, 3))
    return model


def stepped(model):
    optimizer = torch.optim.SGD(with_gradients(model).parameters(), lr=0.1)
    optimizer.step()
    return model, optimizer


def used(criterion):
    criterion(torch.ones(2, requires_grad=True), torch.zeros(2)).backward()
    return criterion


def thread():
    def work():
        with_gradients(mlp())
        end.wait()
    end = threading.Event()
    one = threading.Thread(target=work, daemon=True)
    one.start()
    return one, end


def grad_of_input():
    model, x = mlp(), torch.ones(1, 3, requires_grad=True)
    return lambda: torch.autograd.grad(model(x).sum(), x)


def by_hand():
    model = mlp()

    def step():
        model.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    return step


def with_optimizer():
    model, criterion = mlp(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        criterion(model(torch.ones(1, 3)), torch.zeros(1, 2)).backward()
        optimizer.step()
    return step


def criterion_alone():
    x, target, criterion = torch.ones(2, requires_grad=True), torch.zeros(2), nn.MSELoss()
    return lambda: criterion(x, target).backward()


def forked(call):
    """Calls it in a child process. @return what the child printed"""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, repr(call()).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


# The objects that live beside the step, their number, and the step.
KINDS = {"models": (lambda: looked_at(mlp()), 800, grad_of_input), "trained-models": (lambda: with_gradients(mlp()), 800, by_hand),
         "criteria": (lambda: used(nn.MSELoss()), 800, criterion_alone),
         "optimizers": (lambda: stepped(mlp()), 800, with_optimizer), "threads": (thread, 100, by_hand),
         "forks": (lambda: forked(lambda: with_gradients(mlp())), 40, by_hand),
         "models-in-a-child": (lambda: with_gradients(mlp()), 800, by_hand)}


def microseconds(step):
    for _ in range(STEPS):
        step()
    least = float("inf")
    for _ in range(BURSTS):
        begin = time.thread_time()
        for _ in range(STEPS):
            step()
        least = min(least, time.thread_time() - begin)
        time.sleep(0.01)  # what other threads of the process have to do is done
    return least / STEPS * 1e6


for kind in sys.argv[1:]:
    make, count, step = KINDS[kind]

    def measure(kind=kind, step=step):
        step_ = step()
        if kind.endswith("-in-a-child"):
            return float(forked(lambda: microseconds(step_)))
        return microseconds(step_)

    gc.collect()
    gc.disable()  # Python's own collector walks what lives
    found = [measure()]
    kept = [make() for _ in range(count)]
    found.append(measure())
    if kind == "threads":
        for one, end in kept:
            end.set()
            one.join()
    del kept
    found.append(measure())
    gc.enable()
    print(kind, *(round(one, 1) for one in found), flush=True)
