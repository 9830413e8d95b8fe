#include "tests/golden/golden_values.h"

#include <cmath>

#include "tests/golden/golden_traces.h"
#include "tests/support/trace_builder.h"

namespace convtrace::test {
namespace {

using namespace format;

/// Of f32 as a layer's weights are: mantissas like noise, few exponents.
std::vector<std::byte> weights(size_t count) {
  std::vector<std::byte> bytes = value_bytes(4 * count, 1);
  for (size_t i = 0; i < bytes.size(); i += 4) {
    bytes[i + 2] &= std::byte{0x7f};
    bytes[i + 3] = std::byte{0x3c};
  }
  return bytes;
}

}  // namespace

TraceMeta fixed_meta() {
  TraceMeta meta;
  meta.required_features = 0;  // these hashes are older than version 2
  for (uint8_t i = 0; i < meta.uuid.size(); ++i) meta.uuid[i] = static_cast<uint8_t>(0xA0 + i);
  meta.start_realtime_ns = 1'700'000'000'000'000'000;
  meta.start_monotonic_ns = 1'000'000;
  meta.tool_version = "0.1.0";
  meta.host = "h";
  meta.pid = 42;
  meta.command_line = {"train"};
  return meta;
}

std::vector<std::byte> value_bytes(size_t count, uint32_t seed) {
  std::vector<std::byte> bytes(count);
  uint32_t state = seed;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

void write_values(const std::string& path) {
  TraceBuilder trace(path);
  trace.meta(fixed_meta()).step(0);
  const std::vector<std::byte> first = weights(500);
  std::vector<std::byte> second = first;
  for (size_t i = 0; i < second.size(); i += 4) second[i] ^= std::byte{1};
  trace.value({.slot = "weight", .shape = {50, 10}, .bytes = first, .part_bytes = 800});
  for (uint8_t dtype = 0; dtype <= static_cast<uint8_t>(DType::kC128); ++dtype) {
    const auto type = static_cast<DType>(dtype);
    std::vector<std::byte> bytes = value_bytes(6 * element_bytes(type), dtype);
    for (std::byte& byte : bytes) byte &= type == DType::kBool ? std::byte{1} : std::byte{255};
    trace.value(
        {.slot = std::string(to_string(type)), .dtype = type, .shape = {2, 3}, .bytes = bytes});
  }
  trace.value({.slot = "empty", .shape = {0, 4}});
  trace.step(1).value(
      {.slot = "weight", .shape = {50, 10}, .bytes = second, .part_bytes = 800, .base = first});
  trace.value({.slot = "scalar", .bytes = value_bytes(4, 9)});
  trace.close();
}

/// Types of which a byte is not one IEEE number: two values of 4 bits, an exponent.
void write_packed(const std::string& path) {
  TraceBuilder trace(path);
  trace.meta(fixed_meta()).step(0);
  const std::vector<float> few = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                  -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  std::vector<float> many, scales;
  for (size_t i = 0; i < 64; ++i) {
    many.push_back(few[i * 7 % few.size()]);
    scales.push_back(std::ldexp(1.0F, static_cast<int>(i % 9) - 4));
  }
  const auto f4 = [&](const char* slot, const std::vector<float>& values) {
    trace.stats({.slot = slot,
                 .dtype = DType::kF4E2M1FN,
                 .shape = std::vector<uint64_t>{values.size() / 2},
                 .values = values,
                 .variant = 2});
  };
  f4("output:0", few);
  f4("output:1", many);
  trace.stats({.slot = "output:2", .dtype = DType::kF8E8M0FNU, .values = scales, .variant = 2});
  trace.value({.slot = "f4e2m1fn",
               .dtype = DType::kF4E2M1FN,
               .shape = {16, 16},
               .bytes = value_bytes(256, 18)});
  trace.value({.slot = "f8e8m0fnu",
               .dtype = DType::kF8E8M0FNU,
               .shape = {2, 3},
               .bytes = value_bytes(6, 19)});
  trace.close();
}

}  // namespace convtrace::test
