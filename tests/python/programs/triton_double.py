"""Trains a layer that calls Triton kernels, on the driver double. Triton compiles, specializes, tunes and launches; its
driver is the one here, and what a kernel computes is a function of Python.

usage: triton_double.py FOLDER   (of the double; Triton is found by PYTHONPATH)
Prints the memory that the kernels have written."""
import ctypes
import hashlib
import os
import sys
import time
from types import SimpleNamespace

import numpy
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

COUNT = 1024


@triton.jit
def scaled(x_ptr, out_ptr, scale, count, stride, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place * stride, mask=place < count)
    tl.store(out_ptr + place, x * scale, mask=place < count)


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (128, 256)], key=["count"],
                 do_bench=lambda call, quantiles: benchmark(call))
@triton.jit
def add_one(x_ptr, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + place, tl.load(x_ptr + place, mask=place < count) + 1, mask=place < count)


def benchmark(call):
    """@return a time: the second configuration that is tried is the fastest."""
    for _ in range(3):
        call()
    benchmark.tried = getattr(benchmark, "tried", 0) + 1
    return [1 / benchmark.tried] * 3


class Launch(ctypes.Structure):
    """struct fakecuda_launch"""
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("param_count", ctypes.c_uint),
                ("params", ctypes.POINTER(ctypes.c_void_p)),
                ("device", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t)), ("unfinished", ctypes.c_void_p)]


RUN = ctypes.CFUNCTYPE(None, ctypes.POINTER(Launch))


class Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("run", RUN), ("param_count", ctypes.c_uint),
                ("param_bytes", ctypes.POINTER(ctypes.c_uint))]


class Image(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_char * 8), ("kernel_count", ctypes.c_uint), ("kernels", ctypes.POINTER(Kernel))]


NUMBERS = {"fp32": ctypes.c_float, "i32": ctypes.c_int32}
ELEMENTS = {"*fp16": numpy.float16, "*fp32": numpy.float32, "*i32": numpy.int32}


def kinds_of(source):
    return [kind for kind in source.signature.values() if kind != "constexpr"]


def body_of(name, kinds):
    """@return the kernel as a function of the host."""
    def memory(launch, index):
        kind = ELEMENTS[kinds[index]]
        address = ctypes.cast(launch.params[index], ctypes.POINTER(ctypes.c_uint64))[0]
        size = COUNT * numpy.dtype(kind).itemsize
        return numpy.frombuffer((ctypes.c_byte * size).from_address(launch.device(address, size)), kind)

    def run(pointer):
        launch = pointer[0]
        if name == "scaled":
            scale = ctypes.cast(launch.params[2], ctypes.POINTER(ctypes.c_float))[0]
            memory(launch, 1)[:] = memory(launch, 0).astype(numpy.float32) * numpy.float32(scale)
        else:
            memory(launch, 0)[:] += 1

    return RUN(run)


class Driver:
    """The interface of Triton's driver, over the driver double."""

    def __init__(self, folder):
        self.cuda = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"), ctypes.RTLD_GLOBAL)
        self.stream, self.kept, self.kinds = ctypes.c_void_p(), [], None
        context = ctypes.c_void_p()
        self.good("cuInit", 0)
        self.good("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.good("cuCtxSetCurrent", context)
        self.good("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.utils = SimpleNamespace(load_binary=self.load_binary, get_device_properties=lambda device: {"max_shared_mem": 1 << 20})

    def good(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            sys.exit("%s says %d" % (name, result))

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return self.stream.value

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def load_binary(self, name, binary, shared, device):
        """Binaries name their kernel; those of the double are tables."""
        assert binary.startswith(b"\x7fELF") and name.encode() in binary
        sizes = [ctypes.sizeof(NUMBERS[kind]) if kind in NUMBERS else 8 for kind in self.kinds] + [8, 8]  # scratch memory
        sizes = (ctypes.c_uint * len(sizes))(*sizes)
        kernel = Kernel(name.encode(), body_of(name, self.kinds), len(sizes), sizes)
        image = Image(b"FAKECUDA", 1, ctypes.pointer(kernel))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.good("cuModuleLoadData", ctypes.byref(module), ctypes.byref(image))
        self.good("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        self.kept += [kernel, image, sizes]
        return module.value, function.value, 32, 0, 1024

    def launcher_cls(self, source, metadata):
        self.kinds = kinds_of(source)

        def launch(x, y, z, stream, function, packed, launch_metadata, enter, leave, *arguments):
            values = [argument for argument, kind in zip(arguments, source.signature.values()) if kind != "constexpr"]
            words = [NUMBERS[kind](value) if kind in NUMBERS else ctypes.c_uint64(value.data_ptr())
                     for kind, value in zip(kinds_of(source), values)] + [ctypes.c_uint64(0)] * 2
            params = (ctypes.c_void_p * len(words))(*[ctypes.addressof(word) for word in words])
            self.good("cuLaunchKernel", ctypes.c_void_p(function), x, y, z, 128, 1, 1, 0, ctypes.c_void_p(stream), params, None)

        return launch

    def tensor(self, dtype, data):
        address = ctypes.c_uint64()
        self.good("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(data.nbytes))
        self.good("cuMemcpyHtoD_v2", address, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes))
        return SimpleNamespace(dtype=dtype, data_ptr=lambda: address.value, data=data)

    def read(self, tensor):
        self.good("cuMemcpyDtoH_v2", tensor.data.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(tensor.data_ptr()),
                  ctypes.c_size_t(tensor.data.nbytes))
        return tensor.data


class Layer(torch.nn.Linear):
    def forward(self, x):
        blocks = COUNT // 128
        scaled[(blocks,)](self.halves, self.floats, 0.5, COUNT, 1, BLOCK=128)
        add_one[(blocks,)](self.floats, COUNT)
        add_one[(blocks,)](self.integers, COUNT)
        return super().forward(x)


def main(folder):
    driver = Driver(folder)
    triton.runtime.driver.set_active(driver)
    torch.manual_seed(0)
    model = torch.nn.Sequential(Layer(4, 4))
    layer = model[0]
    layer.halves = driver.tensor(torch.float16, numpy.arange(COUNT, dtype=numpy.float16))
    layer.floats = driver.tensor(torch.float32, numpy.zeros(COUNT, numpy.float32))
    layer.integers = driver.tensor(torch.int32, numpy.arange(COUNT, dtype=numpy.int32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    time.sleep(1)  # until convtrace has prepared the context
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    driver.good("cuStreamSynchronize", driver.stream)
    for tensor in layer.floats, layer.integers:
        print(hashlib.sha256(driver.read(tensor).tobytes()).hexdigest())
    print(add_one.best_config)


main(sys.argv[1])
