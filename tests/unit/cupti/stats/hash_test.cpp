#include <set>

#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/tiling.h"
#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

uint64_t hash_of(const std::vector<uint8_t>& bytes) {
  return compute(view_of(bytes, DType::kU8), format::Capture::kHash).stats.hash;
}

/// The definition, word by word, in reverse.
uint64_t hash_by_definition(const std::vector<uint8_t>& bytes) {
  uint64_t hash = length_key(bytes.size());
  for (uint64_t at = (bytes.size() + 3) / 4; at-- > 0;) {
    uint32_t word = 0;
    for (uint64_t i = 0; i < 4 && at * 4 + i < bytes.size(); ++i) {
      word |= static_cast<uint32_t>(bytes[at * 4 + i]) << (8 * i);
    }
    hash += hash_word(word, at);
  }
  return hash;
}

TEST_CASE("hash: the fast form equals the definition at every length", "[stats][hash]") {
  for (uint64_t size = 0; size < 70; ++size) {
    const auto bytes = random_bytes(DType::kU8, size, size);
    REQUIRE(hash_of(bytes) == hash_by_definition(bytes));
  }
  for (const uint64_t size : {1023u, 1024u, 1025u, 8192u, 16383u, 16389u, 300007u}) {
    const auto bytes = random_bytes(DType::kU8, size, size);
    REQUIRE(hash_of(bytes) == hash_by_definition(bytes));
  }
}

TEST_CASE("hash: values are part of the trace format and never change", "[stats][hash]") {
  REQUIRE(hash_of({}) == 0xC8CCCC7379B18EC1);
  REQUIRE(hash_of({1, 2, 3, 4, 5}) == 0xB44C09230F889E64);
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

TEST_CASE("hash: flipping any two signs changes it", "[stats][hash]") {
  // Differences in the top bit alone are the weakest case of a multilinear hash.
  std::set<uint64_t> low_bits;
  for (uint64_t p = 0; p < 3000; ++p) {
    const uint64_t change = hash_word(0x80000000, p);
    REQUIRE(low_bits.insert(change).second);
    REQUIRE(low_bits.count(0 - change) == 0);
  }
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
  for (const DType dtype : kAllDTypes) {
    REQUIRE(compute(view_of(bytes, dtype)).stats.hash == expected);
  }
}

TEST_CASE("hash: ranges name the first that differs", "[stats][hash]") {
  constexpr uint64_t kBytes = 1000000;
  auto bytes = random_bytes(DType::kU8, kBytes, 3);
  const StatsResult before = compute(view_of(bytes, DType::kU8));
  const Tiling tiling = make_tiling(kBytes);
  REQUIRE(tiling.range_bytes == kMinRangeBytes);
  REQUIRE(before.range_count == 16);
  uint64_t total = length_key(kBytes);
  for (uint32_t i = 0; i < before.range_count; ++i) total += before.range_hashes[i];
  REQUIRE(total == before.stats.hash);
  bytes[5 * kMinRangeBytes + 77] ^= 4;
  const StatsResult after = compute(view_of(bytes, DType::kU8));
  for (uint32_t i = 0; i < before.range_count; ++i) {
    REQUIRE((before.range_hashes[i] == after.range_hashes[i]) == (i != 5));
  }
}

TEST_CASE("tiling: at most 2048 tiles and 256 ranges of whole tiles", "[stats][hash]") {
  for (uint64_t bytes = 1; bytes <= kMaxTensorBytes; bytes *= 2) {
    for (const uint64_t size : {bytes - 1, bytes, bytes + 1}) {
      const Tiling tiling = make_tiling(size);
      REQUIRE(tiling.tiles <= kMaxTiles);
      REQUIRE(tiling.ranges <= kMaxHashRanges);
      REQUIRE(tiling.ranges != 1);
      REQUIRE(tiling.range_bytes % tiling.tile_bytes == 0);
      REQUIRE(tiling.tiles_per_thread * kThreads >= tiling.tiles);
      uint64_t covered = 0;
      for (uint32_t tile = 0; tile < tiling.tiles; ++tile) covered += tile_length(tiling, tile);
      REQUIRE(covered == size);
    }
  }
}

}  // namespace
}  // namespace convtrace::stats::test
