"""Every Python process that has this folder on PYTHONPATH calls cuInit before its program begins."""
import ctypes

ctypes.CDLL("libcuda.so.1").cuInit(0)
