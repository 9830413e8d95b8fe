#include "interposer/core/observer/parsed_messages.h"

#include <algorithm>
#include <array>
#include <span>

#include "cupti/stats/tile/layout.h"
#include "format/base/checksum.h"

namespace convtrace::engine {
namespace {

constexpr uint32_t kMaxParams = 4096;  // 32 KiB of parameters, 8 bytes each
__extension__ typedef __int128 Wide;   // holds any product of extents and strides
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

/// @return whether no extent is negative and their product fits a count of bytes.
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

/// @return format::TensorStats::layout.
uint64_t layout_of(const stats::TensorView& view) {
  std::array<int64_t, 2 * format::kMaxDims> words{};
  size_t count = 0;
  int64_t next = 1;  // the stride without gaps
  bool row_by_row = true;
  for (uint32_t i = view.rank; i-- > 0;) {
    if (view.shape[i] == 1) continue;
    row_by_row = row_by_row && view.strides[i] == next;
    next *= view.shape[i];
    words[count++] = view.shape[i];
    words[count++] = view.strides[i];
  }
  return row_by_row ? 0 : checksum64(std::as_bytes(std::span(words.data(), count)));
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
  event.layout = layout_of(view);
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
  // A view may be far larger than its storage (stride 0); reading all of it would take too long.
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

std::vector<std::byte> leading_values(const stats::TensorView& view, uint64_t count) {
  stats::Layout layout;
  if (!stats::flatten(view, layout).ok()) return {};
  const uint64_t values = std::min(count * format::values_in_element(view.dtype), layout.values());
  std::vector<std::byte> raw(values * format::element_bytes(layout.dtype));
  stats::gather_values(layout, 0, values, raw.data());
  return raw;
}

std::optional<format::Collective> parse_collective(const Message& message) {
  const auto fixed = message.as<convtrace_collective>();
  if (!fixed || fixed->phase >= format::kEnumCount<format::Phase> ||
      fixed->dtype >= format::kEnumCount<format::DType> ||
      fixed->device_type >= format::kEnumCount<format::Device::Type>) {
    return std::nullopt;
  }
  format::Collective event;
  event.place = {format::StringId{fixed->scope}, fixed->call,
                 static_cast<format::Phase>(fixed->phase)};
  event.op = format::StringId{fixed->op};
  event.group = format::StringId{fixed->group};
  event.members = format::StringId{fixed->members};
  event.reduction = format::StringId{fixed->reduction};
  event.group_rank = fixed->group_rank;
  event.group_size = fixed->group_size;
  event.peer = fixed->peer;
  event.dtype = static_cast<format::DType>(fixed->dtype);
  event.device = {static_cast<format::Device::Type>(fixed->device_type), fixed->device_index};
  event.stream = fixed->stream;
  event.sent = fixed->sent;
  event.received = fixed->received;
  event.number = fixed->number;
  event.id = fixed->id;
  event.tag = fixed->tag;
  return event;
}

std::optional<OfCollective> parse_collective_values(const Message& message) {
  const auto fixed = message.as<convtrace_collective_values>();
  if (!fixed) return std::nullopt;
  return OfCollective{fixed->id, fixed->step};
}

std::optional<FlightMessage> parse_flight(const Message& message) {
  const auto fixed = message.as<convtrace_flight>();
  if (!fixed || fixed->phase >= format::kEnumCount<format::Phase> ||
      fixed->device_type >= format::kEnumCount<format::Device::Type>) {
    return std::nullopt;
  }
  FlightMessage flight;
  format::Op& event = flight.event;
  event.moment = fixed->awaited != 0 ? format::OpMoment::kAwaited : format::OpMoment::kInFlight;
  event.place = {format::StringId{fixed->scope}, fixed->call,
                 static_cast<format::Phase>(fixed->phase)};
  event.written = fixed->written != 0;
  event.op = format::StringId{fixed->op};
  event.slot = format::StringId{fixed->slot};
  event.device = {static_cast<format::Device::Type>(fixed->device_type), fixed->device_index};
  event.address = fixed->data;
  event.bytes = fixed->bytes;
  event.value = {.storage = fixed->storage,
                 .offset = fixed->data - fixed->storage_base,
                 .version = fixed->version};
  event.storage_bytes = fixed->storage_bytes;
  if (fixed->line != 0) flight.line = format::StringId{fixed->line};
  return flight;
}

std::optional<cupti::KernelSignature> parse_kernel(const Message& message,
                                                   const format::Definitions& definitions) {
  const auto fixed = message.as<convtrace_kernel>();
  if (!fixed || fixed->param_count > kMaxParams) return std::nullopt;
  std::vector<convtrace_kernel_param> params(fixed->param_count);
  if (!message.copy(sizeof *fixed, params.size(), params.data())) return std::nullopt;
  cupti::KernelSignature signature;
  signature.kernel = definitions.text(format::StringId{fixed->name});
  for (const convtrace_kernel_param& param : params) {
    if (param.dtype >= format::kEnumCount<format::DType>) return std::nullopt;
    signature.params.push_back({format::StringId{param.slot}, param.is_pointer != 0,
                                static_cast<format::DType>(param.dtype)});
  }
  return signature;
}

}  // namespace convtrace::engine
