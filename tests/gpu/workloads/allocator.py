"""Allocations and frees through PyTorch's caching allocator, counted by PyTorch itself."""
import ctypes

from common import arguments, deterministic, finish, need_gpu


def mapped(name):
    """Files of that name which this process has mapped."""
    with open("/proc/self/maps") as file:
        return sorted({line.split()[-1] for line in file if name in line})


def main():
    args = arguments(__doc__)
    need_gpu(args.device)
    torch = deterministic()
    kept = []
    for i in range(500):
        block = torch.empty((i * 7919) % 100_000 + 1, device=args.device)
        if i % 3 == 0:
            kept.append(block)
        if i % 7 == 0 and kept:
            kept.pop(0)
    del block
    kept.clear()
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    c10 = ctypes.CDLL(mapped("libc10.so")[0])
    names = ("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "_ZN3c1022memoryProfilingEnabledEv",
             "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE")
    finish(args.out, allocated=stats["allocation.all.allocated"], freed=stats["allocation.all.freed"],
           cupti=mapped("libcupti.so"), hooks=[name for name in names if hasattr(c10, name)])


if __name__ == "__main__":
    main()
