#pragma once
/// @file group.h
/// One vector load of a thread, and the elements in it.

#include <cstdint>

#include "cupti/stats/tile/dtype_decode.h"

namespace convtrace::stats {

/// 16 bytes of the logical stream as 4 words; bytes behind the tensor's end are zero.
struct Group {
  uint32_t word[4] = {};
};

template <DType D>
CONVTRACE_HD typename Element<D>::Bits element_of(const Group& group, uint32_t e) {
  using Bits = typename Element<D>::Bits;
  if constexpr (sizeof(Bits) == 8) {
    return (static_cast<uint64_t>(group.word[2 * e + 1]) << 32) | group.word[2 * e];
  } else {
    constexpr uint32_t kPerWord = 4 / sizeof(Bits);
    return static_cast<Bits>(group.word[e / kPerWord] >> (e % kPerWord * sizeof(Bits) * 8));
  }
}

inline constexpr uint32_t kChunkGroups = 4;

/// Groups of consecutive rows that a thread loads together, while it uses those before them.
struct Chunk {
  Group group[kChunkGroups];

  /// Calls `use(group, i)` in a loop that is not unrolled, for code that is rarely run. An index
  /// that is no constant would put the groups into a GPU's memory.
  template <typename Use>
  CONVTRACE_HD void for_each_rolled(Use use) const {
    Chunk rest = *this;
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
    for (uint32_t i = 0; i < kChunkGroups; ++i) {
      use(rest.group[0], i);
      for (uint32_t j = 1; j < kChunkGroups; ++j) rest.group[j - 1] = rest.group[j];
    }
  }
};

}  // namespace convtrace::stats
