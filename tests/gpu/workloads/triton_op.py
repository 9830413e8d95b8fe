"""Triton kernels: in a differentiable op, tuned in another one, and one that works in place and is tried out on the program's
data."""
import torch
import triton
import triton.language as tl


@triton.jit
def scaled_relu_kernel(x_ptr, out_ptr, scale, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(x_ptr + place, mask=inside)
    tl.store(out_ptr + place, tl.maximum(x, 0.0) * scale, mask=inside)


class ScaledRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        x = x.contiguous()
        ctx.save_for_backward(x)
        ctx.scale = scale
        out = torch.empty_like(x)
        scaled_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, scale, x.numel(), BLOCK=1024)
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * (x > 0) * ctx.scale, None


def scaled_relu(x, scale):
    return ScaledRelu.apply(x, scale)


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (128, 256, 512)], key=["count"])
@triton.jit
def add_one_kernel(x_ptr, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + place, tl.load(x_ptr + place, mask=place < count) + 1, mask=place < count)


def add_one(x):
    add_one_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (128, 256, 512)], key=["count"])
@triton.jit
def shifted_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.load(x_ptr + place, mask=place < count) + 1, mask=place < count)


class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        shifted_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def shifted(x):
    return Shifted.apply(x)
