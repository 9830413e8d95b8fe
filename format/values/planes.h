#pragma once
/// @file planes.h
/// Elements as byte planes: byte 0 of all elements, then byte 1 of all, ...
///
/// Bytes that mean the same stand together, which is what a compressor finds: the exponents of
/// trained weights take 2.6 bits each, their mantissas 8.
///
/// Threads:  pure functions.
/// Cost:     about that of a copy; the loops are for the compiler to vectorise.

#include "format/values/blob.h"

namespace convtrace::format {

/// @param raw     a multiple of form.width bytes.
/// @param base    as many bytes that `raw` is XORed with, or none.
/// @param planes  as many bytes: plane p begins at p * (raw.size() / form.width).
void split_planes(Bytes raw, Bytes base, ElementForm form, std::span<std::byte> planes) noexcept;

/// The way back. @param planes  one pointer each. @param raw overlaps nothing else.
void join_planes(std::span<const std::byte* const> planes, Bytes base, ElementForm form,
                 std::span<std::byte> raw) noexcept;

}  // namespace convtrace::format
