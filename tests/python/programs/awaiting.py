"""Two processes over gloo that wait for their asynchronous collectives too late, or as they should.

usage: awaiting.py WAY...

Each WAY is a function below: those of FAULTY use or write a tensor before they wait, each in a module of the way's name where
there is one; those of CORRECT do not. All run one after another, a step each.
"""
import os
import sys
import tempfile
import threading
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn

warnings.simplefilter("ignore", FutureWarning)  # some names are old in new releases


class Net(nn.Module):
    """A model whose only part has the name of the way."""

    def __init__(self, name, part=None):
        super().__init__()
        self.add_module(name, part or nn.Linear(4, 4))
        weights = list(self.parameters())
        self.optimizer = torch.optim.SGD(weights, lr=0.1) if weights else None

    def forward(self, *args):
        return next(self.children())(*args)

    def backward(self, x=None):
        self.optimizer.zero_grad()
        self(torch.ones(2, 4) if x is None else x).square().mean().backward()


def reduced(model):
    return [dist.all_reduce(one.grad, async_op=True) for one in model.parameters()]


def wait(works):
    for work in works:
        work.wait()


def from_other(tensor, rank):
    """Each rank sends something to the other, which is waited for. @return the work that receives"""
    sent = dist.isend(torch.full_like(tensor, 3.0), 1 - rank)
    work = dist.irecv(tensor, 1 - rank)
    sent.wait()
    return work


# Faulty


def step_before_wait(rank):
    model = Net("step_before_wait")
    model.backward()
    works = reduced(model)
    model.optimizer.step()
    wait(works)


def clipped_before_wait(rank):
    model = Net("clipped_before_wait")
    model.backward()
    works = reduced(model)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    wait(works)
    model.optimizer.step()


def input_before_wait(rank):
    model, x = Net("input_before_wait"), torch.ones(2, 4)
    work = from_other(x, rank)
    y = model(x)
    work.wait()
    y.square().mean().backward()
    model.optimizer.step()


def gradient_before_wait(rank):
    model, gradient = Net("gradient_before_wait"), torch.ones(2, 4)
    y = model(torch.ones(2, 4))
    work = from_other(gradient, rank)
    y.backward(gradient)
    work.wait()
    model.optimizer.step()


def parameters_before_wait(rank):
    model = Net("parameters_before_wait")
    for _ in range(3):
        model.backward()
        model.optimizer.step()
        works = [dist.all_reduce(one.data, async_op=True) for one in model.parameters()]
    model(torch.ones(2, 4))
    wait(works)


def sent_is_written(rank):
    x, y = torch.ones(50), torch.ones(50)
    sent, received = dist.isend(x, 1 - rank), dist.irecv(y, 1 - rank)
    x.zero_()
    wait([sent, received])


def result_is_written(rank):
    x = torch.ones(50)
    work = dist.all_reduce(x, async_op=True)
    x.div_(2)
    work.wait()


def never_waited(rank):
    model = Net("never_waited")
    model.backward()
    kept = reduced(model)
    model.optimizer.step()
    model.backward()
    dist.barrier()
    del kept


def two_receptions(rank):
    x = torch.ones(6)
    sent = [dist.isend(torch.ones(6), 1 - rank), dist.isend(torch.ones(3), 1 - rank)]
    received = [dist.irecv(x, 1 - rank), dist.irecv(x[2:5], 1 - rank)]
    wait(sent + received)


def one_buffer_for_all(rank):
    dist.all_gather([torch.empty(4)] * 2, torch.ones(4), async_op=True).wait()


def over_a_gradient(rank):
    """The gradients and a buffer lie in one pool, one of them too long."""
    model, pool = Net("over_a_gradient"), torch.zeros(40)
    model.over_a_gradient.weight.grad, model.over_a_gradient.bias.grad = pool[:16].view(4, 4), pool[16:20]
    model(torch.ones(2, 4)).square().mean().backward()
    from_other(pool[18:30], rank).wait()
    model.optimizer.step()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def op_before_wait(rank):
    x = torch.ones(2, 4)
    work = from_other(x, rank)
    Doubled.apply(x)
    work.wait()


FAULTY = (step_before_wait, clipped_before_wait, input_before_wait, gradient_before_wait, parameters_before_wait, sent_is_written,
          result_is_written, never_waited, two_receptions, one_buffer_for_all, over_a_gradient, op_before_wait)


# Correct


def waited(rank):
    model = Net("waited")
    model.backward()
    wait(reduced(model))
    model.optimizer.step()
    x = torch.ones(50)
    dist.all_reduce(x, async_op=True).wait()
    x.div_(2)


def hooks_of_parameters(rank):
    """Each gradient is reduced while the next is computed."""
    model, works = Net("hooks_of_parameters", nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))), []
    for one in model.parameters():
        one.register_post_accumulate_grad_hook(lambda p: works.append(dist.all_reduce(p.grad, async_op=True)))
    for _ in range(2):
        model.backward()
        wait(works)
        works.clear()
        model.optimizer.step()


def other_tensors(rank):
    model, others, result = Net("other_tensors"), torch.ones(50), torch.ones(50)
    work = dist.all_reduce(result, async_op=True)
    others.add_(1)
    model.backward()
    model.optimizer.step()
    work.wait()
    result.add_(others)


def two_buffers(rank):
    model, buffers, works = Net("two_buffers"), [torch.ones(2, 4), torch.ones(2, 4)], [None, None]
    for turn in range(4):
        works[turn % 2] = from_other(buffers[turn % 2], rank)
        if turn:
            works[(turn - 1) % 2].wait()
            model.backward(buffers[(turn - 1) % 2])
            model.optimizer.step()
    works[1].wait()


def sent_is_read(rank):
    model, x, y = Net("sent_is_read"), torch.ones(2, 4), torch.ones(2, 4)
    works = [dist.isend(x, 1 - rank), dist.irecv(y, 1 - rank)]
    model.backward(x)
    model.optimizer.step()
    wait(works)
    x.add_(y)


def parts_of_one(rank):
    """While a part of a flat tensor is reduced the next is filled."""
    flat, works = torch.zeros(4, 8), []
    for i in range(4):
        flat[i].fill_(i)
        works.append(dist.all_reduce(flat[i], async_op=True))
    wait(works)
    Net("parts_of_one")(flat[:, :4])


def in_the_step(rank):
    class Waiting(torch.optim.SGD):
        def step(self, closure=None):
            wait(works)
            return super().step(closure)

    model = Net("in_the_step")
    model.optimizer = Waiting(model.parameters(), lr=0.1)
    model.backward()
    works = reduced(model)
    model.optimizer.step()


def ring(rank):
    """A reduction by hand: each rank adds up a half of all gradients and sends it to the other; then all from rank 0."""
    model, flat = Net("ring"), torch.zeros(20)
    model.ring.weight.grad, model.ring.bias.grad = flat[:16].view(4, 4), flat[16:]
    mine, other = (flat[:10], flat[10:]) if rank == 0 else (flat[10:], flat[:10])
    for _ in range(2):
        flat.zero_()
        model(torch.ones(2, 4)).square().mean().backward()
        theirs = torch.empty(10)
        wait([dist.isend(other, 1 - rank), dist.irecv(theirs, 1 - rank)])
        mine.add_(theirs)
        wait([dist.isend(mine, 1 - rank), dist.irecv(other, 1 - rank)])
        model.optimizer.step()
        flat.zero_()
        model(torch.ones(2, 4)).square().mean().backward()
        for one in model.parameters():
            dist.broadcast(one.grad, 0)
        model.optimizer.step()


class Late(nn.Module):
    def forward(self, x, work):
        work.wait()
        return x + 1


class Early(nn.Module):
    def forward(self, x, rank):
        return x, from_other(x, rank)


def in_a_module(rank):
    x, work = Net("starts", Early())(torch.ones(2, 4), rank)
    x, work = Net("hands_on", nn.Identity())(x), work
    Net("in_a_module", Late())(x, work)


def in_a_hook(rank):
    model, gradient = Net("in_a_hook"), torch.ones(2, 4)
    y = model(torch.ones(2, 4))
    work = from_other(gradient, rank)

    def late(given):
        work.wait()

    y.register_hook(late)
    y.backward(gradient)
    model.optimizer.step()


def before_a_module(rank):
    model = Net("before_a_module")
    works = [dist.broadcast(one.data, 0, async_op=True) for one in model.parameters()]
    model.register_forward_pre_hook(lambda *_: wait(works))
    model.backward()
    model.optimizer.step()


def by_future(rank):
    x, y = torch.ones(50), torch.ones(50)
    dist.all_reduce(x, async_op=True).get_future().wait()
    x.zero_()
    torch.futures.collect_all([dist.all_reduce(one, async_op=True).get_future() for one in (x, y)]).wait()
    x.add_(y)


def asked(rank):
    x = torch.ones(50)
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    x.zero_()


def by_another_thread(rank):
    x = torch.ones(2, 4)
    waiting = threading.Thread(target=from_other(x, rank).wait)
    waiting.start()
    waiting.join()
    Net("by_another_thread")(x)
    x.zero_()


def batch(rank):
    x, y = torch.ones(2, 4), torch.ones(2, 4)
    wait(dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]))
    Net("batch")(y)
    x.zero_()


def coalesced(rank):
    x, y = torch.ones(50), torch.ones(50)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    manager.wait()
    x.add_(y)


def broadcast_from_here(rank):
    """The root of a broadcast reads what it sends."""
    x = torch.ones(2, 4)
    work = dist.broadcast(x, 0, async_op=True)
    if rank == 0:
        Net("broadcast_from_here")(x)
    work.wait()


def loss_for_the_log(rank):
    model = Net("loss_for_the_log")
    loss = model(torch.ones(2, 4)).square().mean()
    work = dist.all_reduce(loss.detach(), async_op=True)
    loss.backward()
    model.optimizer.step()
    work.wait()


def local_steps(rank):
    model = Net("local_steps")
    for turn in range(4):
        model.backward()
        model.optimizer.step()
        if turn % 2:
            wait([dist.all_reduce(one.data, async_op=True) for one in model.parameters()])
            for one in model.parameters():
                one.data.div_(2)


def ddp_with_hooks(rank):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def divided(process_group, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / 2)

    for name, hook in (("plain", None), ("all_reduce", default_hooks.allreduce_hook), ("fp16", default_hooks.fp16_compress_hook),
                       ("own", divided), ("power", powerSGD_hook.powerSGD_hook)):
        model = nn.parallel.DistributedDataParallel(Net(name), gradient_as_bucket_view=name == "own", bucket_cap_mb=0.0001)
        state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2) if name == "power" else None
        if hook is not None:
            model.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()


def fully_sharded(rank):
    from torch.distributed.fsdp import fully_shard

    model = Net("fully_sharded", nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    for part in next(model.children()):
        fully_shard(part)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def functional(rank):
    import torch.distributed._functional_collectives as functional_collectives

    Net("functional")(functional_collectives.all_reduce(torch.ones(2, 4), "sum", dist.group.WORLD))


def acknowledged(rank):
    """Nobody waits for what is sent: that it has arrived, what the other rank sends later tells."""
    model, x, y, kept = Net("acknowledged"), torch.ones(50), torch.empty(50), []
    for turn in range(6):
        model.backward()
        model.optimizer.step()
        if turn % 2 == 0:
            kept.append(dist.isend(x, 1 - rank))
        else:
            dist.irecv(y, 1 - rank).wait()
            x.add_(1)


CORRECT = (waited, hooks_of_parameters, other_tensors, two_buffers, sent_is_read, parts_of_one, ring, in_the_step, in_a_module, in_a_hook,
           before_a_module, by_future, asked, by_another_thread, batch, coalesced, broadcast_from_here, loss_for_the_log,
           local_steps, ddp_with_hooks, fully_sharded, functional, acknowledged)


def work(rank, ways, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    for way in FAULTY + CORRECT:
        if way.__name__ in ways or way in FAULTY and "faulty" in ways or way in CORRECT and "correct" in ways:
            way(rank)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (sys.argv[1:], os.path.join(folder, "store")), nprocs=2)
