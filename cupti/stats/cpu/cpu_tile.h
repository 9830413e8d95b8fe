#pragma once
/// @file cpu_tile.h
/// One tile on a CPU, compiled for several instruction sets that all give the same bits.
///
/// Place:    compute.cpp calls it for every tile; the same sums in the same order as accumulator.h,
///           a vector register at a time.
/// Threads:  reentrant. Needs the default floating-point environment and 32 KiB of stack.

#include <cstdint>
#include <span>

#include "cupti/stats/tile/layout.h"
#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

/// @param hash_only of the result only the hash holds.
using CpuTileFunction = Partial (*)(const Layout& layout, const Tiling& tiling, uint32_t tile,
                                    bool hash_only) noexcept;

Partial cpu_tile_baseline(const Layout& layout, const Tiling& tiling, uint32_t tile,
                          bool hash_only) noexcept;
#if defined(__x86_64__)
Partial cpu_tile_avx2(const Layout& layout, const Tiling& tiling, uint32_t tile,
                      bool hash_only) noexcept;
Partial cpu_tile_avx512(const Layout& layout, const Tiling& tiling, uint32_t tile,
                        bool hash_only) noexcept;
#endif

/// @return those of them that this processor runs, the fastest first; never empty.
[[nodiscard]] std::span<const CpuTileFunction> cpu_tiles() noexcept;

}  // namespace convtrace::stats
