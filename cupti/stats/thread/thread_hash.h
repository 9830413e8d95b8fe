#pragma once
/// @file thread_hash.h
/// One thread's part of a tile's hash. On a device a warp computes it together, by products of
/// matrices of bytes; the host adds up the definition.
///
/// A warp's load of a row is 512 bytes, 16 a lane. As the matrix A of mma.m16n8k32 they are 16 rows
/// of 32 bytes: of the lanes 4g to 4g+3, which hold 64 consecutive bytes, the first and third words
/// are row g, the second and fourth row g + 8. B has the factor of each byte: 256^i y^(4t) for byte i of
/// the first word of lane 4g+t, 256^i y^(4t+2) for that of its third word. A factor is a residue, written
/// in 8 signed digits of base 256, one in each column. So C has 8 sums for each row, exact in 32 bits for
/// kKeyRows rows and more. The factor of the row's position is common to the whole row and is applied at
/// the end.
///
/// Place:    accumulator.h.
/// Threads:  all 32 of a warp call it together.
/// Source:   PTX ISA, "Matrix Fragments for mma.m16n8k32".

#include <cstdint>

#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

inline constexpr uint32_t kWarp = 32;
/// Rows of a tile until the keys repeat; sums of so many have 25 bits.
inline constexpr uint32_t kKeyRows = 16;
static_assert(kMinTileBytes % (kKeyRows * kRowBytes) == 0);

/// @return the factor of a lane's sums, from the positions of its matrix rows in the tile's row and of
/// its columns.
CONVTRACE_HD constexpr uint64_t hash_lane_factor(uint32_t thread) {
  const uint32_t lane = thread % kWarp;
  const uint64_t words = thread / kWarp * (kWarp * kGroupBytes / kHashWordBytes) + lane / 4 * 16;
  return residue_product(hash_factor(words), uint64_t{1} << lane % 4 * 16);
}

/// The matrices B of kKeyRows rows as lanes hold them, and the factor of each thread's sums.
struct HashKeys {
  struct alignas(8) Fragment {
    uint32_t b[2];  ///< 4 digits each
  };
  alignas(16) Fragment of[kKeyRows][kWarp] = {};
  uint64_t factor[kThreads] = {};

  CONVTRACE_HD constexpr HashKeys() {
    for (uint32_t thread = 0; thread < kThreads; ++thread)
      factor[thread] = hash_lane_factor(thread);
    uint64_t row_factor = 1;
    for (auto& row : of) {
      for (uint32_t lane = 0; lane < kWarp; ++lane) {
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t word = lane % 4 * 4 + half * 2;
          uint64_t number = residue_product(row_factor, hash_factor(word));
          for (uint32_t byte = 0; byte < 4; ++byte) {
            row[lane].b[half] |= digit(number, lane / 4) << 8 * byte;
            number = residue_product(number, 256);
          }
        }
      }
      row_factor = residue_product(row_factor, hash_factor(kRowWords));
    }
  }

  /// @return digit `place` of the number in base 256 with digits from -128 to 127 that is `residue`
  /// or that less the prime.
  static CONVTRACE_HD constexpr uint32_t digit(uint64_t residue, uint32_t place) {
    constexpr uint64_t kHalves = 0x8080808080808080;
    // Numbers up to 0x7F7F7F7F7F7F7F7F have such digits, and the negative ones of 64 bits.
    const uint64_t number = residue > kHalves - 0x0101010101010101 ? residue - kHashPrime : residue;
    return static_cast<uint8_t>((number + kHalves) >> 8 * place) ^ 0x80U;
  }
};

/// @param c  a lane's sums of kKeyRows rows at most: of two columns of row g, and of row g + 8.
CONVTRACE_HD constexpr uint64_t hash_of_sums(const int32_t (&c)[4]) {
  const auto to_residue = [](int32_t low, int32_t high) {
    const int64_t sum = low + int64_t{high} * 256;
    return sum < 0 ? kHashPrime - static_cast<uint64_t>(-sum) : static_cast<uint64_t>(sum);
  };
  return residue_sum(to_residue(c[0], c[1]), residue_product(to_residue(c[2], c[3]), kHashBase));
}

#if defined(__CUDA_ARCH__)

static __device__ const HashKeys kHashKeys;

using SharedKeys = HashKeys::Fragment[kKeyRows][kWarp];

/// @return the block's copy of the keys.
__device__ __forceinline__ SharedKeys& shared_keys() {
  __shared__ alignas(16) SharedKeys keys;
  return keys;
}

/// Fills the block's copy: all threads, before the first ThreadHash; a barrier has to follow.
__device__ __forceinline__ void load_shared_keys() {
  constexpr uint32_t kCount = sizeof(SharedKeys) / sizeof(uint4);
  const auto* from = reinterpret_cast<const uint4*>(&kHashKeys.of);
  auto* to = reinterpret_cast<uint4*>(&shared_keys());
  for (uint32_t i = threadIdx.x; i < kCount; i += kThreads) to[i] = from[i];
}

class ThreadHash {
 public:
  __device__ __forceinline__ explicit ThreadHash(uint32_t thread) : thread_(thread) {}

  /// @param chunk of which `rows` are there. @param row of the first, a multiple of kChunkGroups.
  __device__ __forceinline__ void add(const Chunk& chunk, uint32_t row,
                                      uint32_t rows = kChunkGroups) {
    if (row % kKeyRows == 0 && row != 0) flush();
    const auto* const keys = &shared_keys()[row % kKeyRows / kChunkGroups * kChunkGroups];
    CONVTRACE_UNROLLED
    for (uint32_t i = 0; i < kChunkGroups; ++i) {
      if (i < rows) multiply(chunk.group[i], keys[i][thread_ % kWarp]);
    }
  }

  __device__ __forceinline__ uint64_t sum() const {
    ThreadHash rest = *this;
    rest.flush();
    return residue_product(rest.sum_, kHashKeys.factor[thread_]);
  }

 private:
  __device__ __forceinline__ void multiply(const Group& group, HashKeys::Fragment keys) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(sums_[0]), "+r"(sums_[1]), "+r"(sums_[2]), "+r"(sums_[3])
        : "r"(group.word[0]), "r"(group.word[1]), "r"(group.word[2]), "r"(group.word[3]),
          "r"(keys.b[0]), "r"(keys.b[1]));
  }

  __device__ __forceinline__ void flush() {
    constexpr uint64_t kFactor = hash_factor(kKeyRows * kRowWords);
    sum_ = residue_sum(sum_, residue_product(hash_of_sums(sums_), factor_));
    factor_ = residue_product(factor_, kFactor);
    for (int32_t& sum : sums_) sum = 0;
  }

  uint32_t thread_;
  int32_t sums_[4] = {};
  uint64_t sum_ = 0;
  uint64_t factor_ = 1;  ///< hash_factor() of the rows before those in sums_
};

#else

class ThreadHash {
 public:
  explicit ThreadHash(uint32_t thread) : place_(thread * 4) {}

  void add(const Chunk& chunk, uint32_t row, uint32_t rows = kChunkGroups) {
    for (uint32_t i = 0; i < rows; ++i) add(chunk.group[i], row + i);
  }

  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  void add(const Group& group, uint32_t row) {
    uint64_t sum = 0;
    for (uint32_t i = 4; i-- > 0;)
      sum = residue_sum(residue_product(sum, kHashBase), group.word[i]);
    const uint64_t place = uint64_t{row} * kRowWords + place_;
    sum_ = residue_sum(sum_, residue_product(sum, hash_factor(place)));
  }

  uint32_t place_;  ///< index of the thread's first word in a row
  uint64_t sum_ = 0;
};

#endif

}  // namespace convtrace::stats
