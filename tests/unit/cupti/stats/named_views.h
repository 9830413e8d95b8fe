#pragma once
/// @file named_views.h
/// Views as programs make them, into a buffer that holds more than they show: for tests on the CPU
/// and over the fake driver.

#include <algorithm>
#include <cstring>
#include <vector>

#include "cupti/stats/tile/layout.h"
#include "cupti/stats/tile/tensor_view.h"
#include "format/model/dtype.h"

namespace convtrace::stats::test {

struct NamedView {
  const char* name;
  format::DType dtype;
  std::vector<int64_t> shape, strides;
  uint64_t first;  ///< element of the buffer that the view begins with

  [[nodiscard]] uint64_t begin_bytes() const { return first * format::element_bytes(dtype); }

  /// @param buffer  on the host or on a device.
  [[nodiscard]] TensorView at(const void* buffer) const {
    TensorView view{.data = static_cast<const std::byte*>(buffer) + begin_bytes(), .dtype = dtype};
    view.rank = static_cast<uint32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), view.shape);
    std::copy(strides.begin(), strides.end(), view.strides);
    return view;
  }

  /// The elements one by one in logical order, by the definition of strides alone.
  [[nodiscard]] std::vector<uint8_t> copy_of(const void* buffer) const {
    const uint32_t size = format::element_bytes(dtype);
    const TensorView view = at(buffer);
    std::vector<uint8_t> bytes(element_count(view) * size);
    for (uint64_t i = 0; i < element_count(view); ++i) {
      int64_t offset = 0;
      uint64_t rest = i;
      for (size_t d = shape.size(); d-- > 0; rest /= static_cast<uint64_t>(shape[d]))
        offset += static_cast<int64_t>(rest % static_cast<uint64_t>(shape[d])) * strides[d];
      std::memcpy(&bytes[i * size], static_cast<const std::byte*>(view.data) + offset * size, size);
    }
    return bytes;
  }
};

inline constexpr size_t kViewBufferBytes = 12 * 1024;

inline std::vector<NamedView> named_views() {
  using enum format::DType;
  return {{"transposed", kF32, {48, 64}, {1, 48}, 0},
          {"channels-last", kBF16, {2, 6, 5, 7}, {210, 1, 42, 6}, 0},
          {"channels-last, part of the channels", kF16, {2, 4, 5, 7}, {210, 1, 42, 6}, 2},
          {"a part of each row", kF16, {40, 13}, {64, 1}, 11},
          {"rows backwards", kF32, {48, 64}, {-64, 1}, 47 * 64},
          {"all backwards", kF64, {30, 9}, {-9, -1}, 30 * 9 - 1},
          {"every third, unaligned", kU8, {999}, {3}, 5},
          {"every second backwards", kI16, {500}, {-2}, 1000},
          {"pairs of 4 bits, transposed", kF4E2M1FN, {48, 64}, {1, 48}, 3},
          {"pairs of 4 bits, a part of each row backwards", kF4E2M1FN, {40, 13}, {-64, 1}, 2570},
          {"exponents, every third, unaligned", kF8E8M0FNU, {999}, {3}, 5},
          {"complex columns", kC64, {16, 24}, {1, 16}, 2},
          {"expanded", kF32, {7, 50}, {0, 2}, 1}};
}

}  // namespace convtrace::stats::test
