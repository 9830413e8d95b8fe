#include <algorithm>
#include <cstring>
#include <random>

#include "cupti/stats/thread/thread_hash.h"
#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/tiling.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

/// FORMAT.md 6.10, by division: nothing shared with the product.
uint64_t hash_by_definition(const std::vector<uint8_t>& bytes) {
  constexpr UInt128 kPrime = (UInt128{1} << 64) - 59;
  constexpr UInt128 kY = 0x9E3779B97F4A7C18;
  UInt128 hash = 0, power = 1;
  for (size_t at = 0; at < bytes.size(); at += 4) {
    UInt128 word = 0, one = 1;
    for (size_t i = at; i < at + 4 && i < bytes.size(); ++i, one <<= 8) word += bytes[i] * one;
    hash = (hash + (word + one) * power % kPrime) % kPrime;
    power = power * kY % kPrime;
  }
  return static_cast<uint64_t>(hash);
}

TEST_CASE("hash: the fast form equals the definition at every length", "[stats][hash]") {
  for (uint64_t size = 0; size < 4200; ++size) {
    const auto bytes = random_bytes(DType::kU8, size, size);
    REQUIRE(hash_of(bytes) == hash_by_definition(bytes));
  }
  for (const uint64_t size : {8192u, 16383u, 16384u, 16389u, 65536u, 65537u, 131072u, 300007u}) {
    const auto bytes = random_bytes(DType::kU8, size, size);
    REQUIRE(hash_of(bytes) == hash_by_definition(bytes));
  }
}

TEST_CASE("hash: words and sums at the limits of their types", "[stats][hash]") {
  for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
    for (const size_t size : {1u, 4u, 1024u, 16384u, 100000u}) {
      const std::vector<uint8_t> bytes(size, static_cast<uint8_t>(value));
      REQUIRE(hash_of(bytes) == hash_by_definition(bytes));
    }
  }
  std::mt19937_64 random(5);
  constexpr UInt128 kPrime = (UInt128{1} << 64) - 59;
  for (int i = 0; i < 100000; ++i) {
    const uint64_t a = i % 3 == 0 ? kHashPrime - 1 - random() % 100 : random();
    const uint64_t b = i % 5 == 0 ? kHashPrime - 1 - random() % 100 : random();
    const UInt128 x = UInt128{a} * b;
    REQUIRE(residue(x) == static_cast<uint64_t>(x % kPrime));
  }
  REQUIRE(residue(~UInt128{0}) == static_cast<uint64_t>(~UInt128{0} % kPrime));
  for (uint64_t x = kHashPrime - 2; x != 100; ++x) {
    REQUIRE(residue(x) == static_cast<uint64_t>(UInt128{x} % kPrime));
    REQUIRE(residue((UInt128{1} << 64) + x) ==
            static_cast<uint64_t>(((UInt128{1} << 64) + x) % kPrime));
  }
}

TEST_CASE("hash: values are part of the trace format and never change", "[stats][hash]") {
  REQUIRE(hash_of({}) == 0);
  REQUIRE(hash_of({0}) == 0x100);
  REQUIRE(hash_of({1, 2, 3, 4, 5}) == hash_by_definition({1, 2, 3, 4, 5}));
}

TEST_CASE("hash: that of the whole follows from those of parts, in any grouping", "[stats][hash]") {
  std::mt19937_64 random(6);
  for (int i = 0; i < 50; ++i) {
    const auto bytes = random_bytes(DType::kU8, 1 + random() % 200000, random());
    struct Part {
      uint64_t hash, bytes;
    };
    std::vector<Part> parts;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(bytes.size() - at, random() % 500 * 64);
      const auto* const first = bytes.data() + at;
      parts.push_back({hash_of(std::vector(first, first + size)), size});
      at += size;
    }
    while (parts.size() > 1) {
      const size_t at = random() % (parts.size() - 1);
      const Part& front = parts[at];
      const Part& back = parts[at + 1];
      const uint64_t moved = residue_product(back.hash, hash_factor(front.bytes / 4));
      parts[at] = {residue_sum(front.hash, moved), front.bytes + back.bytes};
      parts.erase(parts.begin() + static_cast<int64_t>(at) + 1);
    }
    REQUIRE(parts[0].hash == hash_of(bytes));
  }
}

/// mma.m16n8k32 of PTX, u8 by s8: what each lane holds of the three matrices.
void multiply(const Group (&a)[kWarp], const HashKeys::Fragment (&b)[kWarp],
              int32_t (&c)[kWarp][4]) {
  const auto byte = [](uint32_t word, uint32_t i) { return static_cast<uint8_t>(word >> 8 * i); };
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t column = 0; column < 8; ++column) {
      int32_t sum = 0;
      for (uint32_t k = 0; k < 32; ++k) {
        const Group& of_row = a[row % 8 * 4 + k % 16 / 4];
        const auto& of_column = b[column * 4 + k % 16 / 4];
        sum += byte(of_row.word[row / 8 + k / 16 * 2], k % 4) *
               static_cast<int8_t>(byte(of_column.b[k / 16], k % 4));
      }
      c[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2] += sum;
    }
  }
}

TEST_CASE("hash: a warp's products of matrices add up to the definition", "[stats][hash]") {
  const HashKeys keys;
  for (const bool all_ones : {false, true}) {
    auto bytes = random_bytes(DType::kU8, kKeyRows * kRowBytes, 7);
    if (all_ones) std::ranges::fill(bytes, uint8_t{0xFF});
    uint64_t hash = hash_ones(bytes.size());
    for (uint32_t warp = 0; warp < kThreads / kWarp; ++warp) {
      int32_t sums[kWarp][4] = {};
      for (uint32_t row = 0; row < kKeyRows; ++row) {
        Group groups[kWarp];
        std::memcpy(groups, bytes.data() + row * kRowBytes + warp * sizeof groups, sizeof groups);
        multiply(groups, keys.of[row], sums);
      }
      for (uint32_t lane = 0; lane < kWarp; ++lane) {
        const uint64_t factor = keys.factor[warp * kWarp + lane];
        hash = residue_sum(hash, residue_product(hash_of_sums(sums[lane]), factor));
      }
    }
    REQUIRE(hash == hash_by_definition(bytes));
  }
}

TEST_CASE("hash: every single flipped bit changes it", "[stats][hash]") {
  auto bytes = random_bytes(DType::kU8, 5000, 1);
  const uint64_t original = hash_of(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 3) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    if (hash_of(bytes) == original) FAIL("bit " << bit);
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  REQUIRE(hash_of(bytes) == original);
}

TEST_CASE("hash: exchanging two elements changes it, wherever they are", "[stats][hash]") {
  auto values = std::vector<float>(20000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7 + 1);
  const auto hash = [&] {
    return compute(view_of(values, DType::kF32), format::Capture::kHash).stats.hash;
  };
  const uint64_t original = hash();
  std::mt19937_64 random(4);
  for (int i = 0; i < 2000; ++i) {
    const size_t a = random() % values.size();
    const size_t b = i % 2 == 0 ? (a + 256) % values.size() : random() % values.size();
    if (values[a] == values[b]) continue;
    std::swap(values[a], values[b]);
    if (hash() == original) FAIL(a << " and " << b);
    std::swap(values[a], values[b]);
  }
  REQUIRE(hash() == original);
}

TEST_CASE("hash: exchanging rows, shifting and padding change it", "[stats][hash]") {
  const auto bytes = random_bytes(DType::kU8, 64 * 1024, 8);
  const uint64_t original = hash_of(bytes);
  for (const size_t length : {4u, 1024u, 4096u, 16384u}) {
    auto changed = bytes;
    std::swap_ranges(changed.begin(), changed.begin() + static_cast<int64_t>(length),
                     changed.begin() + 32768);
    REQUIRE(hash_of(changed) != original);
    changed = bytes;
    std::rotate(changed.begin(), changed.begin() + static_cast<int64_t>(length), changed.end());
    REQUIRE(hash_of(changed) != original);
  }
  auto longer = bytes;
  longer.push_back(0);
  REQUIRE(hash_of(longer) != original);
  REQUIRE(hash_of(std::vector<uint8_t>(8)) != hash_of(std::vector<uint8_t>(7)));
}

TEST_CASE("hash: equal bytes have equal hashes whatever their type", "[stats][hash]") {
  const auto bytes = random_bytes(DType::kC128, 3000, 2);
  const uint64_t expected = hash_of(bytes);
  for (const DType dtype : kAllDTypes)
    REQUIRE(compute(view_of(bytes, dtype)).stats.hash == expected);
}

TEST_CASE("hash: ranges name the first that differs", "[stats][hash]") {
  constexpr uint64_t kBytes = 1000000;
  auto bytes = random_bytes(DType::kU8, kBytes, 3);
  const StatsResult before = compute(view_of(bytes, DType::kU8));
  const Tiling tiling = make_tiling(kBytes);
  REQUIRE(tiling.range_bytes() == kMinRangeBytes);
  REQUIRE(before.range_count == 16);
  for (uint32_t i = 0; i < before.range_count; ++i) {
    const auto first = bytes.begin() + int64_t{i} * kMinRangeBytes;
    const auto size = std::min<int64_t>(kMinRangeBytes, bytes.end() - first);
    REQUIRE(before.range_hashes[i] == hash_of(std::vector(first, first + size)));
  }
  bytes[5 * kMinRangeBytes + 77] ^= 4;
  const StatsResult after = compute(view_of(bytes, DType::kU8));
  for (uint32_t i = 0; i < before.range_count; ++i)
    REQUIRE((before.range_hashes[i] == after.range_hashes[i]) == (i != 5));
}

TEST_CASE("tiling: at most 2048 tiles and 256 ranges of whole tiles", "[stats][hash]") {
  for (uint64_t bytes = 1; bytes <= kMaxTensorBytes; bytes *= 2) {
    for (const uint64_t size : {bytes - 1, bytes, bytes + 1}) {
      const Tiling tiling = make_tiling(size);
      REQUIRE(tiling.tiles <= kMaxTiles);
      REQUIRE(tiling.ranges <= kMaxHashRanges);
      REQUIRE(tiling.ranges != 1);
      REQUIRE(tiling.range_bytes() % tiling.tile_bytes() == 0);
      REQUIRE(tiling.tiles_per_group <= kMaxTiles / kThreads);
      REQUIRE(tiling.groups <= kThreads);
      uint64_t grouped = 0;
      for (uint32_t i = 0; i < tiling.groups; ++i) grouped += tiling.group_size(i);
      REQUIRE(grouped == tiling.tiles);
      uint64_t covered = 0;
      for (uint32_t tile = 0; tile < tiling.tiles; ++tile) covered += tile_length(tiling, tile);
      REQUIRE(covered == size);
    }
  }
}

TEST_CASE("hash: a range's is that of its tiles one behind the other, however many it has",
          "[stats][hash]") {
  std::mt19937_64 random(5);
  // 16 KiB a tile and 4 tiles a range; 8 tiles of 16 KiB; 8 tiles of 32 KiB, of 128 KiB and of 1 GiB.
  for (const uint64_t tile : {kMinTileBytes, uint64_t{20} << 10, uint64_t{32} << 10,
                              uint64_t{128} << 10, uint64_t{1} << 30}) {
    for (const uint64_t tiles : {1u, 2u, 9u, 1023u, 1500u, 2047u}) {
      const Tiling tiling = make_tiling(tile * tiles - 5);
      INFO(tiling.bytes);
      std::vector<uint64_t> hashes(tiling.tiles);
      for (uint64_t& hash : hashes) hash = residue(random());
      const uint32_t of_range = 1u << (tiling.range_shift - tiling.tile_shift);
      const uint64_t factor = tile_factor(tiling);
      int unequal = 0;
      for (uint32_t range = 0; range < hashed_ranges(tiling); ++range) {
        const uint32_t first = range * of_range;
        const uint32_t count = std::min(of_range, tiling.tiles - first);
        const uint64_t wanted = concat_hashes(tiling.tile_bytes(), count,
                                              [&](uint32_t i) { return hashes[first + i]; });
        const uint64_t made =
            range_hash(tiling, range, factor, [&](uint32_t i) { return hashes[i]; });
        unequal += made == wanted ? 0 : 1;
      }
      CHECK(unequal == 0);
    }
  }
}

}  // namespace
}  // namespace convtrace::stats::test
