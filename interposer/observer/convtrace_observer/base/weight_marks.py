"""What is kept of a parameter when it is recorded, to see at the next call of its root whether the program has written it
since: a merge, an average, weights that are clipped or loaded again.

That is the number of its storage, how often torch has counted a write to it, and some of its elements: torch counts no
write through `.data`, through numpy, or by another process. Writes of few elements by such ways are not seen, and none in
memory of a device. interposer/core/python/weight_mark.h does the same.
"""
import ctypes

from . import values

_PROBED = 8
_STORAGE_BITS = 40


def mark(observer, owner, value):
    """Notes what is recorded. `value`: a values.Memory."""
    owner.memory = observer.epoch << _STORAGE_BITS | value.storage
    owner.content = value.version << 32 | _digest(value)


def is_written(observer, parameter, owner):
    """Must run inside `with observer.read.unobserved()`."""
    if owner.memory >> _STORAGE_BITS != observer.epoch or type(parameter) not in observer.read.plain:
        return False
    value = observer.read.again(parameter)
    if value is None:
        return False
    digest, before = _digest(value), owner.content & 0xFFFFFFFF
    counted = owner.memory & (1 << _STORAGE_BITS) - 1 == value.storage and owner.content >> 32 != value.version
    return counted or 0 != digest != before != 0


def _digest(value):
    """0 where the elements are not in host memory that the storage owns."""
    width, count = values.ELEMENT_BYTES[value.dtype], 1
    for extent in value.dims[:value.rank]:
        count *= extent
    if value.device != values.CPU or not width or not count:
        return 0
    probed, digest = min(count, _PROBED), 0xCBF29CE484222325
    for index in range(probed):
        address, number = value.data, (count - 1) * index // (probed - 1) if index else 0
        for extent, stride in zip(reversed(value.dims[:value.rank]), reversed(value.dims[value.rank:])):
            address += number % extent * stride * width
            number //= extent
        if not value.base <= address <= value.base + value.storage_bytes - width:
            return 0
        word = int.from_bytes(ctypes.string_at(address, min(width, 8)), "little")
        digest = (digest ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        digest ^= digest >> 29
    return digest >> 32 | 1
