"""Decodes zstd frames and computes XXH3-64 by a library of the tree (tools/python/codec.c): the reader needs no other package."""
import ctypes

from . import tree


def _load():
    path = tree.find("lib/libconvtrace-codec.so")
    if path is None:
        raise ImportError("lib/libconvtrace-codec.so is not beside this package; was only a part installed?")
    library = ctypes.CDLL(path)
    library.convtrace_xxh3_64.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.convtrace_xxh3_64.restype = ctypes.c_uint64
    library.convtrace_unzstd.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    library.convtrace_unzstd.restype = ctypes.c_char_p
    return library


_library = _load()


def xxh3_64(data):
    """@return the 64-bit checksum of bytes."""
    return _library.convtrace_xxh3_64(data, len(data))


def checksum32(data):
    """@return the low half of the checksum, which records contain."""
    return xxh3_64(data) & 0xFFFFFFFF


def unzstd(stored, size):
    """@return the content of one zstd frame, which must state and have `size` bytes. Raises ValueError with the reason."""
    raw = ctypes.create_string_buffer(size)
    error = _library.convtrace_unzstd(stored, len(stored), raw, size)
    if error:
        raise ValueError("zstd: " + error.decode("ascii"))
    return raw.raw
