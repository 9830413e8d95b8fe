"""Marks of recorded parameters, which show at the next call of a root whether the program has written them since: a merge, an
average, weights that are clipped or loaded again.

A mark has the number of the storage, torch's count of writes, and a hash of some elements, since torch counts no write
through `.data`, through numpy, or by another process. Such writes are missed if they change few elements or lie in memory of
a device. Memory that torch has not allocated (a mapped file, an array) may be gone while the parameter still lives.
interposer/core/python/weight_mark.h does the same.
"""
import ctypes
import os

from . import values

_PROBED = 8
_STORAGE_BITS = 40


def mark(observer, parameter, owner, value):
    """Notes the mark of a recorded parameter. `value`: its values.Memory. Must run inside `with observer.read.unobserved()`."""
    owner.memory = observer.epoch << _STORAGE_BITS | value.storage
    owner.content = value.version << 32 | _digest(observer, parameter, value)


def is_written(observer, parameter, owner):
    """@return whether a parameter was written since its mark. Must run inside `with observer.read.unobserved()`."""
    if owner.memory >> _STORAGE_BITS != observer.epoch or not observer.read.is_plain(parameter):
        return False
    value = observer.read.again(parameter)
    if value is None:
        return False
    digest, before = _digest(observer, parameter, value), owner.content & 0xFFFFFFFF
    counted = owner.memory & (1 << _STORAGE_BITS) - 1 == value.storage and owner.content >> 32 != value.version
    return counted or 0 != digest != before != 0


def _digest(observer, parameter, value):
    """@return a hash of some elements; 0 if they are not in the storage's own host memory, it is gone, or the tensor is
    not plain."""
    width, count = values.ELEMENT_BYTES[value.dtype], 1
    for extent in value.dims[:value.rank]:
        count *= extent
    if value.device != values.CPU or not observer.read.is_plain(parameter) or not width or not count:
        return 0
    read = ctypes.string_at if observer.read.is_torchs(parameter) else _read_if_there
    probed, digest = min(count, _PROBED), 0xCBF29CE484222325
    for index in range(probed):
        address, number = value.data, (count - 1) * index // (probed - 1) if index else 0
        for extent, stride in zip(reversed(value.dims[:value.rank]), reversed(value.dims[value.rank:])):
            address += number % extent * stride * width
            number //= extent
        if not value.base <= address <= value.base + value.storage_bytes - width:
            return 0
        found = read(address, min(width, 8))
        if not found:
            return 0
        word = int.from_bytes(found, "little")
        digest = (digest ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        digest ^= digest >> 29
    return digest >> 32 | 1


def _read_if_there(address, size):
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(memory)
