#include "cupti/stats/tile/layout.h"

#include <cstring>

#include "cupti/stats/tile/unpack.h"

namespace convtrace::stats {
namespace {

/// Appends an inner dimension, merging it into the one outside it where a step of that one is a
/// walk over all of this one.
void append(Layout& layout, uint64_t extent, int64_t stride) {
  if (extent == 1) return;
  if (layout.rank > 0) {
    const uint32_t outer = layout.rank - 1;
    int64_t walk = 0;
    const bool fits = !__builtin_mul_overflow(stride, static_cast<int64_t>(extent), &walk);
    if (fits && layout.strides[outer] == walk) {
      layout.shape[outer] *= extent;
      layout.strides[outer] = stride;
      return;
    }
  }
  layout.shape[layout.rank] = extent;
  layout.strides[layout.rank] = stride;
  ++layout.rank;
}

template <typename T>
void copy_run(const std::byte* from, int64_t stride_bytes, uint64_t count, std::byte* out) {
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * sizeof(T), from, sizeof(T));
    from += stride_bytes;
  }
}

void copy_run(uint32_t size, const std::byte* from, int64_t stride_bytes, uint64_t count,
              std::byte* out) {
  if (stride_bytes == size) {
    std::memcpy(out, from, count * size);
    return;
  }
  switch (size) {
    case 1: return copy_run<uint8_t>(from, stride_bytes, count, out);
    case 2: return copy_run<uint16_t>(from, stride_bytes, count, out);
    case 4: return copy_run<uint32_t>(from, stride_bytes, count, out);
    default: return copy_run<uint64_t>(from, stride_bytes, count, out);
  }
}

}  // namespace

Status flatten(const TensorView& view, Layout& layout) noexcept {
  constexpr auto kSite = "flatten";
  layout = {};
  if (view.rank > format::kMaxDims)
    return Status::make(StatusCode::kInvalidArgument, kSite, view.rank);
  layout.data = static_cast<const std::byte*>(view.data);
  layout.dtype = walked_dtype(view.dtype);
  const auto parts = format::element_bytes(view.dtype) / format::element_bytes(layout.dtype);
  const uint64_t limit = kMaxTensorBytes / format::element_bytes(view.dtype);
  uint64_t elements = 1;
  bool too_many = false;
  for (uint32_t i = 0; i < view.rank; ++i) {
    if (view.shape[i] < 0) return Status::make(StatusCode::kInvalidArgument, kSite, view.shape[i]);
    uint64_t product = 0;
    too_many |= __builtin_mul_overflow(elements, static_cast<uint64_t>(view.shape[i]), &product);
    elements = product;
    if (view.shape[i] == 0) return kOkStatus;  // empty, whatever the other extents are
  }
  if (too_many || elements > limit) return Status::make(StatusCode::kLimitExceeded, kSite);
  if (view.data == nullptr) return Status::make(StatusCode::kInvalidArgument, kSite);
  layout.count = elements * parts;
  for (uint32_t i = 0; i < view.rank; ++i)
    append(layout, static_cast<uint64_t>(view.shape[i]), view.strides[i] * parts);
  append(layout, parts, 1);
  if (layout.rank == 1 && layout.strides[0] == 1) layout.rank = 0;
  return kOkStatus;
}

void gather(const Layout& layout, uint64_t first, uint64_t count, std::byte* out) noexcept {
  const uint32_t size = format::element_bytes(layout.dtype);
  if (layout.rank == 0) {
    std::memcpy(out, layout.data + first * size, count * size);
    return;
  }
  uint64_t index[kMaxLayoutDims] = {};
  int64_t offset = 0;
  uint64_t rest = first;
  for (uint32_t i = layout.rank; i-- > 0;) {
    index[i] = rest % layout.shape[i];
    rest /= layout.shape[i];
    offset += static_cast<int64_t>(index[i]) * layout.strides[i];
  }
  const uint32_t inner = layout.rank - 1;
  while (count > 0) {
    const uint64_t left = layout.shape[inner] - index[inner];
    const uint64_t run = left < count ? left : count;
    copy_run(size, layout.data + offset * size, layout.strides[inner] * size, run, out);
    out += run * size;
    count -= run;
    index[inner] += run;
    offset += static_cast<int64_t>(run) * layout.strides[inner];
    for (uint32_t i = inner; i > 0 && index[i] == layout.shape[i]; --i) {
      offset += layout.strides[i - 1] - static_cast<int64_t>(index[i]) * layout.strides[i];
      index[i] = 0;
      ++index[i - 1];
    }
  }
}

void gather_values(const Layout& layout, uint64_t first, uint64_t count, std::byte* out) noexcept {
  const uint32_t values = format::values_in_element(layout.dtype);
  if (values == 1) return gather(layout, first, count, out);
  for (uint64_t i = first; i < first + count; ++i, ++out) {
    gather(layout, i / values, 1, out);
    const auto element = std::to_integer<uint64_t>(*out);
    *out = static_cast<std::byte>(nth_value(element, layout.dtype, i % values));
  }
}

}  // namespace convtrace::stats
