"""Annotations of kernels, whose bodies never run. PyTorch looks for `dtype`."""
constexpr = object()


class dtype:
    pass
