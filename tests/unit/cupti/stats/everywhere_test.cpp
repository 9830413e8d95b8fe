// Every length, each with a quarter of the types in turn; every type around every limit, in every
// layout, and with unusual values at every place: the kernel's replay has the bits of the CPU, and
// both are near the reference.

#include "cupti/stats/tile/dtype_decode.h"
#include "cupti/stats/tile/tiling.h"
#include "tests/unit/cupti/stats/named_views.h"
#include "tests/unit/cupti/stats/replayed_launch.h"
#include "tests/unit/cupti/stats/unusual_patterns.h"

namespace convtrace::stats::test {
namespace {

using format::DType;

enum class Values {
  kAny,    ///< bits
  kBoth,   ///< ordinary_bytes()
  kAbove,  ///< the same above zero alone: a tile of a long type has a shift
};

std::vector<uint8_t> values_of(DType dtype, uint64_t count, Values values, uint64_t seed) {
  if (values == Values::kAny) return random_bytes(dtype, count, seed);
  auto bytes = ordinary_bytes(dtype, count, seed);
  const uint32_t size = format::element_bytes(walked_dtype(dtype));
  for (size_t i = size - 1; values == Values::kAbove && i < bytes.size(); i += size)
    bytes[i] &= 0x7F;
  return bytes;
}

struct Tensor {
  DType dtype;
  std::vector<uint8_t> bytes;
};

void require_replay_equals_cpu(const std::vector<Tensor>& tensors) {
  std::vector<ReplayedLaunch::Input> inputs;
  for (const Tensor& tensor : tensors) inputs.push_back({view_of(tensor.bytes, tensor.dtype)});
  ReplayedLaunch launch(inputs);
  launch.run();
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO(format::to_string(tensors[i].dtype) << ", " << tensors[i].bytes.size() << " bytes");
    require_same(launch.result(i), compute(inputs[i].view));
  }
}

Values values_in_turn(uint64_t i) { return static_cast<Values>(i % 3); }

TEST_CASE("stats: every length up to 4096 has the same bits in the kernel's replay",
          "[stats][everywhere]") {
  // Of 19 lengths in a row each type has five.
  for (uint64_t count = 1; count <= 4096; ++count) {
    std::vector<Tensor> tensors;
    for (uint64_t i = count * 5; i < count * 5 + 5; ++i) {
      const DType dtype = kAllDTypes[i % std::size(kAllDTypes)];
      tensors.push_back({dtype, values_of(dtype, count, values_in_turn(count), count)});
    }
    require_replay_equals_cpu(tensors);
  }
}

TEST_CASE("stats: every length up to 4096 is near the reference", "[stats][everywhere]") {
  for (uint64_t count = 0; count <= 4096; ++count) {
    const DType dtype = kAllDTypes[count % std::size(kAllDTypes)];
    INFO(format::to_string(dtype) << " x " << count);
    const Values values = count % 2 == 0 ? Values::kBoth : Values::kAbove;
    require_matches_reference(view_of(values_of(dtype, count, values, count), dtype));
  }
}

// Hidden: ctest runs it as stats_test/every_length_of_every_type, label long.
TEST_CASE("stats: every type at every length up to 4096, in the replay and near the reference",
          "[.][every_length]") {
  for (const DType dtype : kAllDTypes) {
    for (uint64_t count = 0; count <= 4096; ++count) {
      INFO(format::to_string(dtype) << ", " << count);
      for (const Values values : {Values::kBoth, values_in_turn(count)}) {
        const Tensor tensor{dtype, values_of(dtype, count, values, count)};
        if (values != Values::kAny) require_matches_reference(view_of(tensor.bytes, dtype));
        if (count != 0) require_replay_equals_cpu({tensor});
      }
    }
  }
}

TEST_CASE(
    "stats: lengths around chunks, tiles, ranges and larger tiles have the same bits in the "
    "kernel's replay, and are near the reference",
    "[stats][everywhere]") {
  constexpr uint64_t kChunk = kChunkGroups * kRowBytes;
  uint64_t seed = 0;
  for (const uint64_t limit :
       {kChunk, 2 * kChunk, 3 * kChunk, kMinTileBytes, kMinTileBytes + kChunk, 2 * kMinTileBytes,
        kMinRangeBytes, kThreads / 2 * kMinTileBytes, kThreads * kMinTileBytes}) {
    for (const DType dtype : kAllDTypes) {
      const int64_t size = format::element_bytes(dtype);
      std::vector<Tensor> tensors;
      for (const int64_t off : {-int64_t{kRowBytes}, -int64_t{kGroupBytes}, -size, int64_t{0}, size,
                                int64_t{kGroupBytes}, int64_t{kRowBytes}}) {
        if (limit > kMinRangeBytes && std::abs(off) > size) continue;
        const uint64_t count = (limit + static_cast<uint64_t>(off)) / static_cast<uint64_t>(size);
        ++seed;
        const Values values = values_in_turn(seed);
        tensors.push_back({dtype, values_of(dtype, count, values, seed)});
        if (values != Values::kAny && limit <= kMinRangeBytes)
          require_matches_reference(view_of(tensors.back().bytes, dtype));
      }
      require_replay_equals_cpu(tensors);
    }
  }
  constexpr uint64_t kLargerTiles = kMaxTiles * kMinTileBytes / 2;  // elements of bf16
  for (const uint64_t count : {kLargerTiles, kLargerTiles + 1})
    require_replay_equals_cpu({{DType::kBF16, values_of(DType::kBF16, count, Values::kBoth, 1)}});
}

TEST_CASE(
    "stats: transposed, strided, expanded and backward views of every type have the bits of "
    "their dense copies",
    "[stats][everywhere]") {
  for (const DType dtype : kAllDTypes) {
    const auto buffer = values_of(dtype, 200 * 100, Values::kBoth, 3);
    const NamedView kViews[] = {{"transposed", dtype, {100, 200}, {1, 100}, 0},
                                {"every third", dtype, {200, 33}, {100, 3}, 1},
                                {"expanded", dtype, {5, 70, 30}, {0, 100, 1}, 7},
                                {"one element", dtype, {3000}, {0}, 11},
                                {"backwards", dtype, {90, 150}, {-1, -100}, 19'999}};
    for (const NamedView& view : kViews) {
      INFO(format::to_string(dtype) << ", " << view.name);
      const auto copy = view.copy_of(buffer.data());
      const TensorView dense = view_of(copy, dtype);
      const StatsResult want = compute(dense);
      require_same(compute(view.at(buffer.data())), want);
      ReplayedLaunch launch({{view.at(buffer.data())}, {dense}});
      launch.run();
      require_same(launch.result(0), want);
      require_same(launch.result(1), want);
    }
  }
}

TEST_CASE("stats: tensors of one integer alone, and of two in turn", "[stats][everywhere]") {
  for (const DType dtype : kAllDTypes) {
    if (format::number_class(dtype) == format::NumberClass::kFloat) continue;
    const uint64_t least = uint64_t{1} << (8 * format::element_bytes(dtype) - 1);
    const std::vector<uint64_t> kPatterns[] = {
        {0}, {1}, {least - 1}, {least}, {UINT64_MAX}, {0, 1}, {least, least - 1}, {1, UINT64_MAX}};
    for (const auto& pattern : kPatterns) {
      INFO(format::to_string(dtype) << " 0x" << std::hex << pattern[0] << " ...");
      std::vector<Tensor> tensors;
      for (const uint64_t count : {3u, 4096u, 10'001u})
        tensors.push_back({dtype, repeated_bits(dtype, count, pattern)});
      require_replay_equals_cpu(tensors);
      for (const Tensor& tensor : tensors) require_matches_reference(view_of(tensor.bytes, dtype));
    }
  }
}

/// Bits of one element each: NaN, infinities, limits, zeros and subnormals, of bf16 some that leave the
/// range of squares in f32; limits and zero of integers.
std::vector<uint64_t> unusual_bits(DType dtype) {
  if (dtype == DType::kBool) return {0, 1, 2, 0x80, 0xFF};  // PyTorch's are 0 and 1
  if (format::number_class(dtype) != format::NumberClass::kFloat) {
    const uint64_t least = uint64_t{1} << (8 * format::element_bytes(dtype) - 1);
    return {0, 1, least - 1, least, UINT64_MAX};
  }
  const auto [nan, inf, largest, one, sign] = float_bits(dtype);
  return {nan, nan | sign, inf, inf | sign, largest, largest | sign, 0, sign, 1, 3 | sign, one};
}

void put(std::vector<uint8_t>& bytes, DType dtype, uint64_t element, uint64_t bits) {
  const size_t size = format::element_bytes(dtype);
  std::memcpy(&bytes[element * size], &bits, size);
}

// A thread judges the four groups of its chunk by themselves, so that one tensor holds an unusual value
// in each thread's chunk: at one place in the first chunk, at the next one in the second.
TEST_CASE("stats: each unusual value at every place of a thread's chunk", "[stats][everywhere]") {
  for (const DType dtype : kAllDTypes) {
    if (walked_dtype(dtype) != dtype) continue;  // complex
    const uint32_t group = kGroupBytes / format::element_bytes(dtype);
    const uint32_t row = kThreads * group;
    for (const uint64_t bits : unusual_bits(dtype)) {
      INFO(format::to_string(dtype) << " 0x" << std::hex << bits);
      const uint64_t places = kChunkGroups * group;
      auto bytes = values_of(dtype, places * kChunkGroups * row, Values::kBoth, bits);
      for (uint64_t place = 0; place < places; ++place) {
        const uint64_t first = place * kChunkGroups * row + place / group * row + place % group;
        for (uint32_t thread = 0; thread < kThreads; ++thread)
          put(bytes, dtype, first + thread * group, bits);
      }
      require_replay_equals_cpu({{dtype, bytes}});
      const bool squares_fit =
          dtype != DType::kF64 || (bits & ~float_bits(dtype).sign) != float_bits(dtype).largest;
      if (squares_fit) require_matches_reference(view_of(bytes, dtype));
    }
  }
}

TEST_CASE("stats: one unusual float alone at every place of a chunk of all threads",
          "[stats][everywhere]") {
  for (const DType dtype : kFloatDTypes) {
    INFO(format::to_string(dtype));
    const uint64_t chunk = kChunkGroups * kRowBytes / format::element_bytes(dtype);
    auto bytes = values_of(dtype, chunk * chunk, Values::kBoth, 9);
    const auto unusual = unusual_bits(dtype);
    for (uint64_t place = 0; place < chunk; ++place)
      put(bytes, dtype, place * chunk + place, unusual[place % unusual.size()]);
    require_replay_equals_cpu({{dtype, bytes}});
  }
}

}  // namespace
}  // namespace convtrace::stats::test
