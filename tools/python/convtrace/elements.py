"""Decodes raw elements of tensors to numbers: FORMAT.md section 6, column dtype."""
import math
import struct

# Bytes of one real number, and its code in `struct`; None: decoded below.
_FORMS = {"unknown": (1, "B"), "f64": (8, "d"), "c128": (8, "d"), "f32": (4, "f"), "c64": (4, "f"),
          "f16": (2, "e"), "bf16": (2, None), "f8e4m3fn": (1, None), "f8e5m2": (1, None), "f4e2m1fn": (1, None),
          "f8e8m0fnu": (1, None), "i8": (1, "b"),
          "u8": (1, "B"), "i16": (2, "h"), "u16": (2, "H"), "i32": (4, "i"), "u32": (4, "I"),
          "i64": (8, "q"), "u64": (8, "Q"), "bool": (1, "B")}


def part_bytes(dtype):
    """@return the bytes of an element among samples; of a complex one only the real part is stored."""
    return _FORMS[dtype][0]


def is_float(dtype):
    return dtype[0] in "fc" or dtype == "bf16"


def is_signed(dtype):
    return dtype[0] == "i"


def decode(dtype, raw):
    code = _FORMS[dtype][1]
    if code is not None:
        return struct.unpack("<" + code, raw)[0]
    if dtype == "bf16":
        return struct.unpack("<f", b"\0\0" + raw)[0]
    if dtype == "f4e2m1fn":
        return math.copysign((0, 0.5, 1, 1.5, 2, 3, 4, 6)[raw[0] & 7], 0.5 - (raw[0] >> 3 & 1))
    if dtype == "f8e8m0fnu":
        return math.ldexp(1, raw[0] - 127) if raw[0] != 255 else math.nan
    exponent_bits, mantissa_bits = (4, 3) if dtype == "f8e4m3fn" else (5, 2)
    return _small_float(raw[0], exponent_bits, mantissa_bits, dtype == "f8e5m2")


def _small_float(bits, exponent_bits, mantissa_bits, has_infinity):
    mantissa = bits & ((1 << mantissa_bits) - 1)
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    sign = -1.0 if bits >> 7 else 1.0
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == (1 << exponent_bits) - 1:
        if has_infinity and mantissa == 0:
            return sign * math.inf
        if has_infinity or mantissa == (1 << mantissa_bits) - 1:
            return math.nan
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp(mantissa | 1 << mantissa_bits, exponent - bias - mantissa_bits)
