#pragma once
/// @file tensor_view.h
/// Input of statistics: elements in memory, walked in logical order.

#include <cstdint>
#include <span>

#include "format/model/dtype.h"
#include "format/model/events.h"

namespace convtrace::stats {

/// A strided tensor. Elements are taken in row-major logical order whatever the strides, so layouts
/// and devices agree.
///
/// `data` is the address of element [0, 0, ...] (storage offset applied), on the host or on a
/// device; borrowed for the call. Strides are in elements, may be 0 (expanded) or negative. rank 0
/// is a scalar: one element.
struct TensorView {
  const void* data = nullptr;
  format::DType dtype = format::DType::kUnknown;
  uint32_t rank = 0;
  int64_t shape[format::kMaxDims] = {};
  int64_t strides[format::kMaxDims] = {};
};

/// @return product of the shape; 0 if any extent is 0.
constexpr uint64_t element_count(const TensorView& view) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < view.rank; ++i) count *= static_cast<uint64_t>(view.shape[i]);
  return count;
}

/// The shape as events want it; valid as long as `view`.
inline std::span<const uint64_t> shape_of(const TensorView& view) {
  return {reinterpret_cast<const uint64_t*>(view.shape), view.rank};
}

/// A dense one-dimensional view, as for bytes behind a raw pointer.
constexpr TensorView dense_view(const void* data, format::DType dtype, uint64_t count) {
  TensorView view{.data = data, .dtype = dtype, .rank = 1};
  view.shape[0] = static_cast<int64_t>(count);
  view.strides[0] = 1;
  return view;
}

}  // namespace convtrace::stats
