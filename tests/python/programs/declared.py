"""A module whose op changes its input and returns it, without PyTorch's knowledge; the input is freed."""
import ctypes

import torch


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.numpy()[:] *= 2
        memory = (ctypes.c_char * (4 * x.numel())).from_address(x.data_ptr())
        return torch.frombuffer(memory, dtype=torch.float32)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Doubled(torch.nn.Module):
    def forward(self, x):
        return InPlace.apply(x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.doubled = Doubled()

    def forward(self, x):
        y = self.doubled(x.clone())
        return y.clone() + x.clone()


with torch.no_grad():
    print(float(Model()(torch.ones(1000)).shape[0]))
