#include "interposer/core/observer/parsed_messages.h"

#include <vector>

namespace convtrace::engine {
namespace {

constexpr uint32_t kMaxParams = 4096;  // 32 KiB of parameters, 8 bytes each

}  // namespace

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
