#pragma once
/// @file hash_mix.h
/// Keys of tables whose entries several numbers identify.

#include <cstdint>

namespace convtrace::judge {

[[nodiscard]] inline uint64_t mix(uint64_t sum, uint64_t word) {
  return (sum ^ word) * 0xD6E8FEB86659FD93 + (sum >> 29);
}

}  // namespace convtrace::judge
