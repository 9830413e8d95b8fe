#pragma once
/// @file layout.h
/// A tensor view brought to its shortest form: real elements, fewest dimensions.
///
/// Threads:  plain values.
/// Errors:   kInvalidArgument (rank, negative extent, null data with elements), kLimitExceeded.

#include <cstddef>
#include <cstdint>

#include "cupti/stats/tile/tensor_view.h"
#include "cupti/stats/tile/tiling.h"
#include "format/base/status.h"

namespace convtrace::stats {

/// One more than a view has: the parts of a complex element become the innermost dimension.
inline constexpr uint32_t kMaxLayoutDims = format::kMaxDims + 1;

struct Layout {
  const std::byte* data = nullptr;
  format::DType dtype = format::DType::kU8;  ///< walked type
  uint64_t count = 0;                        ///< number of elements of that type
  uint32_t rank = 0;                     ///< after merging; 0: dense, `data` holds count elements
  uint64_t shape[kMaxLayoutDims] = {};   ///< outermost first, all > 1
  int64_t strides[kMaxLayoutDims] = {};  ///< in such elements

  [[nodiscard]] uint64_t bytes() const { return count * format::element_bytes(dtype); }
  /// Real numbers, which statistics count.
  [[nodiscard]] uint64_t values() const { return count * format::values_in_element(dtype); }
};

/// Drops dimensions of extent 1 and merges those that are contiguous to each other.
[[nodiscard]] Status flatten(const TensorView& view, Layout& layout) noexcept;

/// Copies `count` elements in logical order, from logical element `first`, to `out`.
void gather(const Layout& layout, uint64_t first, uint64_t count, std::byte* out) noexcept;

/// The same of values, as samples are stored: two that share a byte in a byte each.
void gather_values(const Layout& layout, uint64_t first, uint64_t count, std::byte* out) noexcept;

}  // namespace convtrace::stats
