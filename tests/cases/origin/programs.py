"""Programs of several ranks with faults that are known from reports, each faulty and corrected.

A program is a function of (rank, size, faulty). `KNOWN` says where the fault was met, `EXPECTED` what `convtrace
origin` is to say first: kind, rank (None: it cannot be told), step and the module or the operation.
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def mlp(width=8):
    return nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))


def reduce_gradients(model, size, but=()):
    """Data-parallel training by hand."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and name not in but:
            dist.all_reduce(parameter.grad)
            parameter.grad /= size


def train(model, rank, step_of, learning_rate=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    torch.manual_seed(100 + rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        step_of(step)
        optimizer.step()


class ExpertParallel(nn.Module):
    """A router that every rank has, and of the experts one a rank; all ranks have all tokens."""

    def __init__(self, rank, size):
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(8, size, bias=False)
        torch.manual_seed(1 + rank)
        self.expert = nn.Linear(8, 8)
        self.rank = rank

    def forward(self, x):
        share = self.gate(x).softmax(-1)[:, self.rank:self.rank + 1]
        return Summed.apply(share * self.expert(x))


class Summed(torch.autograd.Function):
    """The sum over ranks, whose gradient each rank has already."""

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def router_gradient(rank, size, faulty):
    """Each rank's gradient of the router is what its own expert contributes."""
    model = ExpertParallel(rank, size)
    generator = torch.Generator().manual_seed(5)

    def step(_):
        x = torch.randn(16, 8, generator=generator)
        model(x).square().mean().backward()
        if not faulty:
            dist.all_reduce(model.gate.weight.grad)

    train(model, 0, step)


def no_sync_misplaced(rank, size, faulty):
    """The gradients of the last of two micro-batches must be summed over ranks; the fault sums those of the first."""
    torch.manual_seed(0)
    model = DistributedDataParallel(mlp())

    def step(_):
        for part in range(2):
            x = torch.randn(4, 8)
            if (part == 1) == faulty:
                with model.no_sync():
                    model(x).square().mean().backward()
            else:
                model(x).square().mean().backward()

    train(model, rank, step)


def head_behind_ddp(rank, size, faulty):
    """A head that is made after the model was wrapped is none of DDP's parameters."""
    torch.manual_seed(0)
    body, head = mlp(), nn.Linear(8, 2)
    if faulty:
        wrapped = DistributedDataParallel(body)
        whole = nn.Sequential(wrapped, head)
    else:
        whole = DistributedDataParallel(nn.Sequential(body, head))

    def step(_):
        whole(torch.randn(4, 8)).square().mean().backward()

    train(whole, rank, step)


def forgotten_division(rank, size, faulty):
    """One rank takes the sum for the mean in one step."""
    torch.manual_seed(0)
    model = mlp()

    def step(number):
        model(torch.randn(4, 8)).square().mean().backward()
        reduce_gradients(model, 1 if faulty and rank == 1 and number == 2 else size)

    train(model, rank, step)


def changed_before_reduction(rank, size, faulty):
    """One rank puts a factor on a gradient between its backward pass and the sum, from the third step on."""
    torch.manual_seed(0)
    model = mlp()

    def step(number):
        model(torch.randn(4, 8)).square().mean().backward()
        if faulty and rank == 2 and number >= 2:
            model[2].weight.grad.mul_(1.3)
        reduce_gradients(model, size)

    train(model, rank, step)


def skipped_metric(rank, size, faulty):
    """One rank leaves out the sum of a metric in one step; the next call of the others meets its next one."""
    torch.manual_seed(0)
    model = nn.Linear(8, 1, bias=False)
    weight = torch.zeros(1, 1)

    def step(number):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        reduce_gradients(model, size)
        metric = loss.detach().clone().reshape(1)
        if not (faulty and rank == 2 and number == 1):
            dist.all_reduce(metric, op=dist.ReduceOp.MAX)
        dist.broadcast(weight[0], 0)

    train(model, rank, step)


def stale_broadcast(rank, size, faulty):
    """Rank 0 updates and sends its weights; one rank goes on with those of before."""
    torch.manual_seed(0)
    model = mlp()

    def step(number):
        model(torch.randn(4, 8)).square().mean().backward()
        reduce_gradients(model, size)
        if faulty and rank == 3 and number == 2:
            for parameter in model.parameters():
                parameter.grad.zero_()

    train(model, rank, step)


def nan_of_one_rank(rank, size, faulty):
    """A division by the number of valid labels, of which a batch of one rank has none."""
    torch.manual_seed(0)
    model = DistributedDataParallel(mlp())

    def step(number):
        valid = torch.ones(4) if not (faulty and rank == 2 and number == 3) else torch.zeros(4)
        losses = model(torch.randn(4, 8)).square().mean(-1)
        ((losses * valid).sum() / valid.sum()).backward()

    train(model, rank, step)


def clipped_before_the_sum(rank, size, faulty):
    """Gradients are clipped by each rank's own norm, on one rank after the sum."""
    torch.manual_seed(0)
    model = mlp()

    def step(_):
        model(torch.randn(4, 8)).square().mean().backward()
        reduce_gradients(model, size)
        nn.utils.clip_grad_norm_(model.parameters(), 0.01 if not (faulty and rank == 1) else 0.02)

    train(model, rank, step)


class Center(nn.Module):
    """An average of outputs that the training keeps."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        return x - self.mean


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.head = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.center = Center()

    def forward(self, x):
        return self.center(self.head(self.norm(self.inner(x)).relu()))


def normed(**words):
    torch.manual_seed(0)
    return DistributedDataParallel(Normed(), **words)


def buffers_not_broadcast(rank, size, faulty):
    """Each rank keeps the running statistics of its own data."""
    model = normed(broadcast_buffers=not faulty)
    train(model, rank, lambda _: model(torch.randn(8, 8)).square().mean().backward())


def buffer_of_one_rank(rank, size, faulty):
    """An average of outputs over all ranks, into which one rank puts its own output from step 4 on."""
    model = normed(broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)
    for step in range(7):
        optimizer.zero_grad()
        y = model(torch.randn(8, 8))
        y.square().mean().backward()
        optimizer.step()
        mean = y.detach().mean(0)
        local = mean.clone()
        dist.all_reduce(mean)
        model.module.center.mean.lerp_(local if faulty and rank == 1 and step >= 4 else mean / size, 0.1)


class Features(nn.Module):
    """Random features, as the module right inside DDP holds them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("directions", torch.empty(8, 16))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head((x @ self.directions).cos())


def features_of_each_rank(rank, size, faulty):
    """The features are drawn when DDP has made the buffers of all ranks equal, by ranks with seeds of their own."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Features(), broadcast_buffers=False)
    torch.manual_seed(rank if faulty else 7)
    model.module.directions.normal_()
    torch.manual_seed(100 + rank)
    train(model, rank, lambda _: model(torch.randn(8, 8)).square().mean().backward())


def never_synchronised(rank, size, faulty):
    """no_sync around all forward passes, not only those before the last."""
    torch.manual_seed(0)
    model = DistributedDataParallel(mlp())

    def step(_):
        with model.no_sync():
            loss = model(torch.randn(4, 8)).square().mean()
            if not faulty:
                loss.backward()
        if faulty:
            loss.backward()
        else:
            model(torch.randn(4, 8)).square().mean().backward()

    train(model, rank, step)


def wrapper_not_called(rank, size, faulty):
    """The model is called, not the wrapper around it."""
    torch.manual_seed(0)
    model = mlp()
    wrapped = DistributedDataParallel(model)
    train(model, rank, lambda _: (model if faulty else wrapped)(torch.randn(4, 8)).square().mean().backward())


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.used, self.unused = mlp(), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        return self.used(self.body(x))


def unused_parameter(rank, size, faulty):
    """A bucket with a parameter that gets no gradient is never summed: the first step is silently that of each rank
    alone, and DDP says so in the next forward pass. Here the program goes on without it."""
    torch.manual_seed(0)
    model = TwoHeads()
    wrapped = DistributedDataParallel(model, find_unused_parameters=not faulty)

    def step(_):
        x = torch.randn(4, 8)
        try:
            y = wrapped(x)
        except RuntimeError:
            y = model(x)
        y.square().mean().backward()

    train(model, rank, step)


def equal_seeds(rank, size, faulty):
    """A sampler without the rank: all ranks draw the same batches."""
    torch.manual_seed(0)
    model = DistributedDataParallel(mlp())
    data = torch.randn(64, 8)
    sampler = torch.Generator().manual_seed(3 if faulty else 3 + rank)
    train(model, rank,
          lambda _: model(data[torch.randint(0, 64, (4,), generator=sampler)]).square().mean().backward())


class Case:
    """`note`: an expression for the note that is expected instead of an origin."""

    def __init__(self, program, known, kinds=(), rank=None, step=None, where=None, size=4, note=None):
        self.program, self.known, self.kinds, self.rank, self.step, self.where = program, known, kinds, rank, step, where
        self.size, self.note = size, note


CASES = {
    "router-gradient": Case(router_gradient, "transformers#48687, torchtitan#2387", ("not-reduced", "parted"), None, 0, "gate"),
    "no-sync-misplaced": Case(no_sync_misplaced, "DDP's documentation", ("not-reduced", "parted"), None, 0, ""),
    "head-behind-ddp": Case(head_behind_ddp, "DDP's forum", ("not-reduced", "parted"), None, 0, "1"),
    "forgotten-division": Case(forgotten_division, "written for this table", ("not-reduced", "parted"), 1, 2, ""),
    "changed-before-reduction": Case(changed_before_reduction, "written for this table", ("written",), 2, 2, "2"),
    "skipped-metric": Case(skipped_metric, "written for this table", ("mismatch",), 2, 1, None),
    "stale-weights": Case(stale_broadcast, "written for this table", ("not-reduced", "parted"), 3, 2, ""),
    "nan-of-one-rank": Case(nan_of_one_rank, "Megatron-LM#7452, losses without labels", ("nan",), 2, 3, None),
    "never-synchronised": Case(never_synchronised, "DDP's documentation", ("not-reduced",), None, 0, ""),
    "wrapper-not-called": Case(wrapper_not_called, "DDP's forum", ("not-reduced",), None, 0, ""),
    "unused-parameter": Case(unused_parameter, "DDP's documentation", ("not-reduced",), None, 0, "", size=2),
    "buffers-not-broadcast": Case(buffers_not_broadcast, "DDP's documentation",
                                  note="buffers norm.* not the same on ranks 0-3 from step 0 on"),
    "buffer-of-one-rank": Case(buffer_of_one_rank, "written for this table", ("parted",), 1, 5, "center"),
    "features-of-each-rank": Case(features_of_each_rank, "written for this table",
                                  note="buffer directions is not the same on ranks 0-3 from step 0 on"),
    "equal-seeds": Case(equal_seeds, "DistributedSampler's documentation", note="ranks 0-3 have equal .* data in all"),
    "clipped-unlike": Case(clipped_before_the_sum, "written for this table", ("not-reduced", "parted"), 1, 0, ""),
}
