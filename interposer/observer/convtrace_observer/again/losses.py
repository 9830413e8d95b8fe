"""Computes losses again from what their nodes have saved, to tell whether that is still what they were computed from.

A loss that its own node does not give again is a proof: the backward pass will take its gradient at other scores or targets. The
graph between the node and the tensor from which the backward pass begins has to be sums, means, and products with saved numbers.
"""
import math

from ..base import contents
from . import unseen

_MOST_NODES = 64
_MOST_ELEMENTS = 1 << 20  # 4 MiB in f32, so that neither time nor memory is noticed
_ROUNDING = 64  # spacings of numbers: sums in another order, as with another number of threads


class Losses:
    def __init__(self, torch):
        self._torch = torch
        functions = torch._C._nn
        self.functions = {  # name of a node -> (its function, the names of what the node has saved, as the function takes it)
            "BinaryCrossEntropyBackward0": (functions.binary_cross_entropy, ("self", "target", "weight"), ("reduction",)),
            "BinaryCrossEntropyWithLogitsBackward0": (
                torch.binary_cross_entropy_with_logits, ("self", "target", "weight", "pos_weight"), ("reduction",)),
            "HuberLossBackward0": (functions.huber_loss, ("self", "target"), ("reduction", "delta")),
            "MseLossBackward0": (functions.mse_loss, ("self", "target"), ("reduction",)),
            "SmoothL1LossBackward0": (functions.smooth_l1_loss, ("self", "target"), ("reduction", "beta")),
            "SoftMarginLossBackward0": (functions.soft_margin_loss, ("self", "target"), ("reduction",)),
        }
        self._unseen = unseen.Unseen(torch)

    def changed(self, loss, kept_by):
        """@return the nodes of losses below a tensor, if they do not give it any more; else an empty list, also where that is not
        known. `kept_by(node, name)`: the tensor that a node has saved, or None."""
        torch, nodes = self._torch, []
        if not loss.is_floating_point() or loss.numel() != 1 or not loss.is_cpu or not self._unseen.is_possible():
            return []
        with torch.no_grad(), self._unseen.region():
            again = self._value(loss.grad_fn, kept_by, nodes, iter(range(_MOST_NODES)))
            if again is None or not nodes or again.dtype != loss.dtype or again.numel() != 1:
                return []
            now, then = again.item(), loss.item()
        bound = _ROUNDING * torch.finfo(loss.dtype).eps * max(abs(now), abs(then))
        return nodes if math.isfinite(now) and math.isfinite(then) and abs(now - then) > bound else []

    def _value(self, node, kept_by, nodes, left):
        """@return what a node gives; None if it cannot be computed. `nodes`: those of losses are appended. `left`: an item for each
        further visit; a node is visited once for each way to it."""
        name = contents.name_of(type(node)) if node is not None and next(left, None) is not None else ""
        if name in self.functions:
            function, tensors, others = self.functions[name]
            saved = [kept_by(node, one) for one in tensors]
            optional = [getattr(node, "_raw_saved_" + one).data is None for one in tensors]
            if any(one is None and not missing or one is not None and one.numel() > _MOST_ELEMENTS
                   for one, missing in zip(saved, optional)):
                return None
            nodes.append(node)
            return function(*saved, *(getattr(node, "_saved_" + one) for one in others))
        if name not in _ABOVE:
            return None
        below = [one for one, _ in node.next_functions]
        values = []
        for one in below[:2 if name == "AddBackward0" else 1]:
            values.append(self._value(one, kept_by, nodes, left))
            if values[-1] is None:
                return None
        if name == "AddBackward0":
            return self._torch.add(*values, alpha=node._saved_alpha)
        if name in ("MeanBackward0", "SumBackward0"):
            return values[0].mean() if name == "MeanBackward0" else values[0].sum()
        other = kept_by(node, "other") if below[1:] == [None] else None
        if other is None:
            return None
        return values[0] * other if name == "MulBackward0" else values[0] / other


_ABOVE = frozenset(("AddBackward0", "DivBackward0", "MeanBackward0", "MulBackward0", "SumBackward0"))
