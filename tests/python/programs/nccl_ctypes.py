"""Calls NCCL through ctypes: one rank, three collectives. usage: nccl_ctypes.py FOLDER   (of the libraries)

Prints how many of its calls convtrace counted on this thread."""
import ctypes
import os
import sys
import time


def good(result):
    if result != 0:
        sys.exit("a call says %d" % result)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def recorded():
    """nccl_calls of convtrace_thread_scope."""
    with open("/proc/self/maps") as maps:
        core = {line.split()[-1] for line in maps if "libconvtrace-core" in line}
    if not core:
        return 0
    library = ctypes.CDLL(core.pop())
    library.convtrace_scope_slot.restype = ctypes.c_void_p
    return (ctypes.c_uint64 * 3).from_address(library.convtrace_scope_slot())[2]


def main(folder):
    cuda = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"), ctypes.RTLD_GLOBAL)
    nccl = ctypes.CDLL(os.path.join(folder, "libnccl.so.2"))
    context, stream, comm, address = (ctypes.c_void_p() for _ in range(4))
    good(cuda.cuInit(0))
    good(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    good(cuda.cuCtxSetCurrent(context))
    good(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    good(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)))
    host = (ctypes.c_float * 8)(*range(8))
    good(cuda.cuMemcpyHtoD_v2(address, host, ctypes.c_size_t(32)))
    unique = UniqueId()
    good(nccl.ncclGetUniqueId(ctypes.byref(unique)))
    nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    good(nccl.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0))
    time.sleep(1)  # until convtrace has prepared the context
    of = ctypes.c_size_t(8), 7
    out = ctypes.c_void_p(address.value + 32)
    good(nccl.ncclAllReduce(address, out, *of, 0, comm, stream))
    good(nccl.ncclBroadcast(address, out, *of, 0, comm, stream))
    good(nccl.ncclAllReduce(address, address, *of, 2, comm, stream))
    good(cuda.cuStreamSynchronize(stream))
    good(nccl.ncclCommDestroy(comm))
    print(recorded(), "calls recorded")


main(sys.argv[1])
