#include "interposer/core/observer/element_counts.h"

#include <numeric>
#include <utility>

namespace convtrace::engine {
namespace {

using format::DType;

/// @return the number of elements equal to `index` in the dimensions from `dim` on.
template <typename T>
uint64_t count_below(const stats::TensorView& view, const T* data, uint32_t dim, int64_t index) {
  if (dim == view.rank) return std::cmp_equal(*data, index) ? 1 : 0;
  const int64_t stride = view.strides[dim];
  uint64_t found = 0;
  if (dim + 1 < view.rank) {
    for (int64_t i = 0; i < view.shape[dim]; ++i)
      found += count_below(view, data + i * stride, dim + 1, index);
  } else {
    for (int64_t i = 0; i < view.shape[dim]; ++i)
      found += std::cmp_equal(data[i * stride], index) ? 1 : 0;
  }
  return found;
}

template <typename T>
PaddingCount count_of(const stats::TensorView& view, int64_t index) {
  const auto* const data = static_cast<const T*>(view.data);
  PaddingCount result;
  if (view.rank < 2 || view.shape[0] > static_cast<int64_t>(format::kMaxPadRows)) {
    result.count = count_below(view, data, 0, index);
    return result;
  }
  for (int64_t row = 0; row < view.shape[0]; ++row)
    result.rows.push_back(count_below(view, data + row * view.strides[0], 1, index));
  result.count = std::accumulate(result.rows.begin(), result.rows.end(), uint64_t{0});
  return result;
}

}  // namespace

PaddingCount count_padding(const stats::TensorView& view, int64_t index) {
  if (stats::element_count(view) == 0) return {};
  switch (view.dtype) {
    case DType::kI8: return count_of<int8_t>(view, index);
    case DType::kU8: return count_of<uint8_t>(view, index);
    case DType::kI16: return count_of<int16_t>(view, index);
    case DType::kU16: return count_of<uint16_t>(view, index);
    case DType::kI32: return count_of<int32_t>(view, index);
    case DType::kU32: return count_of<uint32_t>(view, index);
    case DType::kI64: return count_of<int64_t>(view, index);
    case DType::kU64: return count_of<uint64_t>(view, index);
    default: return {};
  }
}

}  // namespace convtrace::engine
