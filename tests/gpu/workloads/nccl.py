"""NCCL through ctypes and the CUDA driver, without PyTorch: a communicator of one rank, every function that moves data, a
group, a part of the communicator, and a call that is captured into a graph. Before each call its input is set, and
behind it input and output are set to something else, all on one stream."""
import ctypes
import glob
import hashlib
import os
import struct
import sys
import time

from common import arguments, finish, need_gpu, not_here

COUNT = 1 << 20
BYTES = 4 * COUNT
FLOAT, SUM = 7, 0
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
SIZE, WORD, POINTER = ctypes.c_size_t, ctypes.c_uint, ctypes.c_void_p


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def library(name, *patterns):
    """Loads a library by its name, or from one of NVIDIA's packages."""
    found = [name] + [path for folder in sys.path for pattern in patterns for path in sorted(glob.glob(os.path.join(folder, pattern)))]
    for path in found:
        try:
            return ctypes.CDLL(path)
        except OSError:
            pass
    return not_here("no %s" % name)


def good(result):
    if result != 0:
        raise SystemExit("a call of CUDA or NCCL says %d" % result)


class Program:
    def __init__(self):
        self.cuda = library("libcuda.so.1")
        self.nccl = library("libnccl.so.2", "nvidia/nccl/lib/libnccl.so.2")
        self.context, self.stream, self.comm, self.input, self.output = (POINTER() for _ in range(5))
        cuda = self.cuda
        if cuda.cuInit(0) != 0:
            not_here("no device")
        good(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0))
        good(cuda.cuCtxSetCurrent(self.context))
        good(cuda.cuStreamCreate(ctypes.byref(self.stream), 1))
        for memory in self.input, self.output:
            good(cuda.cuMemAlloc_v2(ctypes.byref(memory), SIZE(BYTES)))
        unique = UniqueId()
        good(self.nccl.ncclGetUniqueId(ctypes.byref(unique)))
        self.nccl.ncclCommInitRank.argtypes = [POINTER, ctypes.c_int, UniqueId, ctypes.c_int]
        good(self.nccl.ncclCommInitRank(ctypes.byref(self.comm), 1, unique, 0))
        self.calls, self.digest = [], hashlib.sha256()

    def set_memory(self, memory, value):
        bits, = struct.unpack("<I", struct.pack("<f", value))
        good(self.cuda.cuMemsetD32Async(memory, WORD(bits), SIZE(COUNT), self.stream))

    def call(self, op, function, *args, comm=None, group=False):
        """@param args  what stands between the count and the communicator."""
        function = getattr(self.nccl, function, None)
        if function is None:  # NCCL before 2.28
            return
        value = float(len(self.calls) + 1)
        in_place = function is getattr(self.nccl, "ncclBcast", None)
        behind = (SIZE(COUNT), FLOAT, *args, comm or self.comm, self.stream)
        self.set_memory(self.input, value)
        if group:
            good(self.nccl.ncclGroupStart())
            good(self.nccl.ncclSend(self.input, *behind))
            good(self.nccl.ncclRecv(self.output, *behind))
            good(self.nccl.ncclGroupEnd())
        elif in_place:
            good(function(self.input, *behind))
        else:
            good(function(self.input, self.output, *behind))
        self.keep(self.input if in_place else self.output)
        self.set_memory(self.input, -1.0)
        self.set_memory(self.output, -2.0)
        self.calls += [{"op": one, "value": value} for one in (("send", "recv") if group else (op,))]

    def keep(self, memory):
        host = ctypes.create_string_buffer(BYTES)
        good(self.cuda.cuStreamSynchronize(self.stream))
        good(self.cuda.cuMemcpyDtoH_v2(host, memory, SIZE(BYTES)))
        self.digest.update(host.raw)

    def captured(self):
        """One call that a graph runs twice."""
        graph, executable = POINTER(), POINTER()
        good(self.cuda.cuStreamSynchronize(self.stream))
        good(self.cuda.cuStreamBeginCapture_v2(self.stream, RELAXED))
        good(self.nccl.ncclAllReduce(self.input, self.output, SIZE(COUNT), FLOAT, SUM, self.comm, self.stream))
        good(self.cuda.cuStreamEndCapture(self.stream, ctypes.byref(graph)))
        good(self.cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)))
        for value in 100.0, 101.0:
            self.set_memory(self.input, value)
            good(self.cuda.cuGraphLaunch(executable, self.stream))
            self.keep(self.output)
        good(self.cuda.cuGraphExecDestroy(executable))
        good(self.cuda.cuGraphDestroy(graph))
        self.calls.append({"op": "all_reduce", "value": None})


def main():
    args = arguments(__doc__)
    need_gpu(args.device)
    program, part = Program(), POINTER()
    time.sleep(1)
    program.call("all_reduce", "ncclAllReduce", SUM)
    program.call("broadcast", "ncclBroadcast", 0)
    program.call("broadcast", "ncclBcast", 0)
    program.call("reduce", "ncclReduce", SUM, 0)
    program.call("all_gather", "ncclAllGather")
    program.call("reduce_scatter", "ncclReduceScatter", SUM)
    program.call("all_to_all", "ncclAlltoAll")
    program.call("gather", "ncclGather", 0)
    program.call("scatter", "ncclScatter", 0)
    program.call(None, "ncclSend", 0, group=True)
    good(program.nccl.ncclCommSplit(program.comm, 0, 0, ctypes.byref(part), None))
    program.call("all_reduce", "ncclAllReduce", SUM, comm=part)
    program.captured()
    good(program.cuda.cuStreamSynchronize(program.stream))
    good(program.nccl.ncclCommDestroy(part))
    good(program.nccl.ncclCommDestroy(program.comm))
    finish(args.out, digest=program.digest.hexdigest(), calls=program.calls)


if __name__ == "__main__":
    main()
