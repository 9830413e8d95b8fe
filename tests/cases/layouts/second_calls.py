"""Collectives with gradients that models of the second set call."""

import torch
import torch.distributed as dist


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g


class Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Gather(torch.autograd.Function):
    """all-gather in dim; backward: own part (grad replicated)."""

    @staticmethod
    def forward(ctx, x, dim, swap):
        ctx.dim = dim
        n = dist.get_world_size()
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(n)]
        dist.all_gather(parts, x)
        return torch.cat(parts[::-1] if swap else parts, dim)

    @staticmethod
    def backward(ctx, g):
        return g.chunk(dist.get_world_size(), ctx.dim)[dist.get_rank()].contiguous(), None, None


class GatherSum(Gather):
    """all-gather in dim; backward: reduce-scatter."""

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g.chunk(dist.get_world_size(), ctx.dim)[dist.get_rank()].contiguous(), None, None


class ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        x = x.clone()
        dist.all_reduce(x)
        return x.chunk(dist.get_world_size(), dim)[dist.get_rank()].contiguous()

    @staticmethod
    def backward(ctx, g):
        parts = [torch.empty_like(g.contiguous()) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, g.contiguous())
        return torch.cat(parts, ctx.dim), None


# ---------- conv
