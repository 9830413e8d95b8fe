"""The op of bias_relu.cpp in Python, for CPUs of machines without a compiler."""
import ctypes

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>


def define(reuses_input):
    """Registers torch.ops.demo_ops.bias_relu. `reuses_input`: with the bug. C's allocator is then set to keep freed memory
    for the next tensor, as caching_allocator.cpp does, so that a late read gives another tensor's value and no crash."""

    def bias_relu(x, bias):
        return torch.add(x, bias, out=_over(x) if reuses_input else torch.empty_like(x)).relu_()

    class BiasRelu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, bias):
            out = bias_relu(x, bias)
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, grad_out):
            grad = torch.ops.aten.threshold_backward(grad_out, ctx.saved_tensors[0], 0)
            return grad, grad.sum((0, 1))

    if reuses_input:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    define.library = torch.library.Library("demo_ops", "DEF")  # the op lives as long as this object
    define.library.define("bias_relu(Tensor x, Tensor bias) -> Tensor")
    define.library.impl("bias_relu", bias_relu, "CompositeExplicitAutograd")
    define.library.impl("bias_relu", BiasRelu.apply, "Autograd")


def _over(x):
    """@return a tensor in the memory of `x`, which it does not keep alive."""
    memory = (ctypes.c_float * x.numel()).from_address(x.data_ptr())
    return torch.frombuffer(memory, dtype=torch.float32).view(x.shape)
