#pragma once
/// @file planes.h
/// Splits elements into byte planes: byte 0 of all elements, then byte 1 of all, ...
///
/// Bytes with the same meaning are then adjacent, which a compressor needs: exponents of trained
/// weights take 2.6 bits each, mantissas 8.
///
/// Threads:  pure functions.
/// Cost:     about that of a copy; the compiler vectorises the loops.

#include "format/values/blob.h"

namespace convtrace::format {

/// @param raw     a multiple of form.width bytes.
/// @param base    as many bytes to XOR `raw` with, or none.
/// @param planes  as many bytes: plane p begins at p * (raw.size() / form.width).
void split_planes(Bytes raw, Bytes base, ElementForm form, std::span<std::byte> planes) noexcept;

/// The inverse of split_planes. @param planes  one pointer for each plane. @param raw  overlaps
/// nothing else.
void join_planes(std::span<const std::byte* const> planes, Bytes base, ElementForm form,
                 std::span<std::byte> raw) noexcept;

}  // namespace convtrace::format
