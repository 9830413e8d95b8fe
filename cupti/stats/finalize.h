#pragma once
/// @file finalize.h
/// From a tensor's Partial to the numbers that are stored: divisions and square roots, on the host
/// alone.

#include <cstdint>

#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/tiling.h"
#include "format/model/dtype.h"
#include "format/model/stats.h"

namespace convtrace::stats {

/// @param total of all tiles of a tensor of `dtype` (as asked for, not as walked).
/// Values of f64 beyond 1e154 overflow the sums of squares: l2 and std are then +Inf, never NaN. A
/// sum whose parts overflow both ways is NaN, and so is its mean.
/// @return all but the hash.
[[nodiscard]] format::Stats finalize(const Partial& total, format::DType dtype) noexcept;

/// @param[in,out] ranges  what range_hash() gives of each of hashed_ranges(tiling); becomes the hash
/// of each.
/// @return the hash of all bytes.
[[nodiscard]] uint64_t finalize_hashes(uint64_t* ranges, const Tiling& tiling) noexcept;

}  // namespace convtrace::stats
