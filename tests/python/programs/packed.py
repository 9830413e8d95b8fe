"""A module that quantizes to MXFP4: 4-bit values, two a byte, and a scale for 32 of them. Writes what it gave to argv[1]."""
import sys

import numpy
import torch

MAGNITUDES = torch.tensor((0, 0.5, 1, 1.5, 2, 3, 4, 6))


class Quantize(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        blocks = (x * self.weight).detach().reshape(-1, 32)
        scales = torch.exp2(torch.floor(torch.log2(blocks.abs().amax(1))) - 2).to(torch.float8_e8m0fnu)
        blocks = blocks / scales.to(torch.float32)[:, None]
        nearest = (blocks.abs()[..., None] - MAGNITUDES).abs().argmin(-1).to(torch.uint8)
        codes = (nearest | torch.signbit(blocks).to(torch.uint8) << 3).reshape(*x.shape[:-1], -1, 2)
        packed = (codes[..., 0] | codes[..., 1] << 4).view(torch.float4_e2m1fn_x2)
        return packed, scales.view(*x.shape[:-1], -1)


class Strides(torch.nn.Module):
    """Views of bytes that hold every pattern."""

    def forward(self, data):
        four = data.view(torch.float4_e2m1fn_x2)
        eight = data.view(torch.float8_e8m0fnu)
        return four.t(), four[1:, 3::2], eight.t(), eight[:5, 1:4], four[0, :5], eight[0, :0]


def raw(tensor):
    return tensor.view(torch.uint8).contiguous().numpy()


torch.manual_seed(1)
given = {}
quantize, strides = Quantize(), Strides()
for name, module, inputs in (("Quantize", quantize, torch.randn(24, 640)),
                             ("Strides", strides, torch.arange(65 * 129).to(torch.uint8).reshape(65, 129))):
    for i, output in enumerate(module(inputs)):
        given["%s output:%d %s" % (name, i, str(output.dtype).split(".")[1])] = raw(output)
numpy.savez(sys.argv[1], **given)
