#pragma once
/// @file group.h
/// One vector load of a thread, and the elements in it.

#include <cstdint>

#include "cupti/stats/dtype_decode.h"

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

}  // namespace convtrace::stats
