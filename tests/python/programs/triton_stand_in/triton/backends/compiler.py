"""The target that Triton compiles for."""
from collections import namedtuple

GPUTarget = namedtuple("GPUTarget", "backend arch warp_size")
