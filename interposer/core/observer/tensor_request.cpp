#include "interposer/core/observer/tensor_request.h"

#include <algorithm>
#include <cstring>

namespace convtrace::engine {
namespace {

__extension__ typedef __int128 Wide;  // wider than any product of extents and strides
constexpr uint64_t kMaxExpandedElements = uint64_t{1} << 28;

bool in_range(const convtrace_tensor& message) {
  using format::kEnumCount;
  return message.phase < kEnumCount<format::Phase> &&
         message.capture < kEnumCount<format::Capture> &&
         message.device_type < kEnumCount<format::Device::Type> &&
         message.dtype < kEnumCount<format::DType> && message.rank <= format::kMaxDims &&
         message.extent < kEnumCount<format::Extent> &&
         message.padding < kEnumCount<format::Padding>;
}

bool has_indices(format::DType dtype) {
  const format::NumberClass kind = number_class(dtype);
  return (kind == format::NumberClass::kSigned || kind == format::NumberClass::kUnsigned) &&
         dtype != format::DType::kBool;
}

/// @return whether the extents are sane: none negative, and a product that is a count of bytes.
bool sane_shape(const stats::TensorView& view) {
  constexpr Wide kMost = Wide{1} << 62;
  Wide bytes = format::element_bytes(view.dtype);
  bool empty = false;
  for (uint32_t i = 0; i < view.rank; ++i) {
    if (view.shape[i] < 0) return false;
    empty = empty || view.shape[i] == 0;
    if (view.shape[i] > 0) bytes *= view.shape[i];
    if (bytes > kMost) return false;
  }
  return empty || bytes <= kMost;
}

}  // namespace

std::optional<TensorRequest> parse_tensor(const Message& message) {
  const auto fixed = message.as<convtrace_tensor>();
  if (!fixed || !in_range(*fixed)) return std::nullopt;
  TensorRequest request;
  stats::TensorView& view = request.view;
  view.data = reinterpret_cast<const void*>(fixed->data);
  view.dtype = static_cast<format::DType>(fixed->dtype);
  view.rank = fixed->rank;
  const size_t shape_at = sizeof *fixed;
  if (!message.copy(shape_at, view.rank, view.shape) ||
      !message.copy(shape_at + view.rank * sizeof(int64_t), view.rank, view.strides) ||
      !sane_shape(view)) {
    return std::nullopt;
  }
  request.storage_base = fixed->storage_base;
  request.storage_bytes = fixed->storage_bytes;
  request.stream = fixed->stream;
  format::TensorStats& event = request.event;
  event.place = {format::StringId{fixed->scope}, fixed->call,
                 static_cast<format::Phase>(fixed->phase)};
  event.slot = format::StringId{fixed->slot};
  event.op = format::StringId{fixed->op};
  event.device = {static_cast<format::Device::Type>(fixed->device_type), fixed->device_index};
  event.dtype = view.dtype;
  event.extent = static_cast<format::Extent>(fixed->extent);
  event.capture = static_cast<format::Capture>(fixed->capture);
  event.value = {.storage = fixed->storage,
                 .offset = fixed->data - fixed->storage_base,
                 .generation = 0,
                 .version = fixed->version};
  event.address = fixed->data;
  event.bytes = stats::element_count(view) * format::element_bytes(view.dtype);
  event.has_shape = true;
  if (fixed->padding != 0 && has_indices(view.dtype)) {
    event.padding = static_cast<format::Padding>(fixed->padding);
    event.pad_index = fixed->pad_index;
    event.pad_count = format::kNotCounted;
  }
  return request;
}

bool in_bounds(const TensorRequest& request) {
  const stats::TensorView& view = request.view;
  const uint64_t count = stats::element_count(view);
  if (count == 0) return true;
  // A view may be far larger than its storage (stride 0): walking it all would stop the program.
  if (count > kMaxExpandedElements && request.event.bytes > request.storage_bytes) return false;
  Wide lowest = 0, highest = 0;
  for (uint32_t i = 0; i < view.rank; ++i) {
    const Wide reach = Wide{view.shape[i] - 1} * view.strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  const Wide element = format::element_bytes(view.dtype);
  const Wide start = Wide{request.event.address} - Wide{request.storage_base};
  return view.data != nullptr && start + lowest * element >= 0 &&
         start + (highest + 1) * element <= Wide{request.storage_bytes};
}

size_t copy_leading(const stats::TensorView& view, uint64_t count, std::byte* out) {
  const size_t element = format::element_bytes(view.dtype);
  const uint64_t taken = std::min(count, stats::element_count(view));
  const auto* const data = static_cast<const std::byte*>(view.data);
  for (uint64_t i = 0; i < taken; ++i) {
    int64_t offset = 0;
    uint64_t rest = i;
    for (uint32_t d = view.rank; d-- > 0;) {
      const auto extent = static_cast<uint64_t>(view.shape[d]);
      offset += static_cast<int64_t>(rest % extent) * view.strides[d];
      rest /= extent;
    }
    std::memcpy(out + i * element, data + offset * static_cast<int64_t>(element), element);
  }
  return taken * element;
}

}  // namespace convtrace::engine
