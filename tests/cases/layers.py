"""Layers that can compute the same in several orders of sums: what a run's variant switches.

`variant` is set before a model is built and holds for the process:
  split    products cut into four along the summed dimension
  flip     products with the summed dimension backwards
  unfused  norms, GELU and attention by their formulas
  explicit attention alone by its formula
All others are no matter of layers, see training.py.
"""
import torch
import torch.nn.functional as F
from torch import nn

variant = "plain"


def product(x, weight, bias=None):
    """x @ weight.T + bias; weight: [out, in]."""
    if variant == "split":
        total = sum(part @ piece.t() for part, piece in zip(x.chunk(4, -1), weight.chunk(4, -1)))
    elif variant == "flip":
        total = x.flip(-1) @ weight.flip(-1).t()
    else:
        return F.linear(x, weight, bias)
    return total if bias is None else total + bias.to(total.dtype)


class Linear(nn.Linear):
    def forward(self, x):
        return product(x, self.weight, self.bias)


class Conv2d(nn.Conv2d):
    def forward(self, x):
        if variant not in ("split", "flip") or self.in_channels < 4:
            return super().forward(x)
        order = slice(None, None, -1) if variant == "flip" else slice(None)
        pieces = list(zip(x.chunk(4, 1), self.weight.chunk(4, 1)))[order]
        total = sum(F.conv2d(part, weight, None, self.stride, self.padding) for part, weight in pieces)
        return total if self.bias is None else total + self.bias.to(total.dtype).view(-1, 1, 1)


def normed(x, dims, eps):
    mean = x.mean(dims, keepdim=True)
    deviation = x - mean
    return deviation / (deviation.square().mean(dims, keepdim=True) + eps).sqrt()


class LayerNorm(nn.LayerNorm):
    def forward(self, x):
        if variant != "unfused":
            return super().forward(x)
        # The result has the type and layout of the fused one, since dropout draws its mask in the order of memory.
        return (normed(x, -1, self.eps) * self.weight + self.bias).to(x.dtype).contiguous()


class RMSNorm(nn.RMSNorm):
    def forward(self, x):
        if variant != "unfused":
            return super().forward(x)
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight


class GroupNorm(nn.GroupNorm):
    def forward(self, x):
        if variant != "unfused":
            return super().forward(x)
        y = normed(x.unflatten(1, (self.num_groups, -1)), (2, 3, 4), self.eps).flatten(1, 2)
        return y * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


class GELU(nn.GELU):
    def forward(self, x):
        if variant != "unfused" or self.approximate != "none":
            return super().forward(x)
        return x * 0.5 * (1 + torch.erf(x * 0.5 ** 0.5))


def attention(q, k, v, mask, scale):
    """mask: bool, true where a query (row) sees a key; None: all."""
    if variant not in ("unfused", "explicit"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    scores = q @ k.transpose(-2, -1) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1).to(v.dtype) @ v


def as_fused(output):
    """@return the output in the type that torch's own LSTM returns under autocast."""
    return output.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else output


class LSTM(nn.LSTM):
    """One layer, batch first; cell by cell where its products are taken in another order."""

    def forward(self, x):
        if variant not in ("split", "flip"):
            return super().forward(x)[0]
        h = c = x.new_zeros(x.shape[0], self.hidden_size)
        steps = []
        for given in x.unbind(1):
            sums = product(given, self.weight_ih_l0, self.bias_ih_l0) + product(h, self.weight_hh_l0, self.bias_hh_l0)
            i, f, g, o = sums.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            steps.append(h)
        return as_fused(torch.stack(steps, 1))


class GRU(nn.GRU):
    """One layer, batch first; cell by cell where its products are taken in another order."""

    def forward(self, x):
        if variant not in ("split", "flip"):
            return super().forward(x)[0]
        h = x.new_zeros(x.shape[0], self.hidden_size)
        steps = []
        for given in x.unbind(1):
            r, z, n = product(given, self.weight_ih_l0, self.bias_ih_l0).chunk(3, -1)
            hr, hz, hn = product(h, self.weight_hh_l0, self.bias_hh_l0).chunk(3, -1)
            z = (z + hz).sigmoid()
            h = (1 - z) * (n + (r + hr).sigmoid() * hn).tanh() + z * h
            steps.append(h)
        return torch.stack(steps, 1)
