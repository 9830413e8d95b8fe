#pragma once
/// @file observer_messages.h
/// Batches of observer messages (interposer/abi/observer_abi.h) in a few lines, for tests of the
/// engine that need no Python.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "format/model/dtype.h"
#include "format/model/events.h"
#include "interposer/abi/observer_abi.h"

namespace convtrace::test {

/// A tensor as the observer describes it. Dense unless strides are given.
struct TensorSpec {
  uint32_t scope = 0, call = 0, slot = 0, op = 0, version = 0;
  format::Phase phase = format::Phase::kForward;
  format::Capture capture = format::Capture::kStats;
  format::Device device = {};
  format::DType dtype = format::DType::kF32;
  const void* data = nullptr;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};
  uint64_t storage = 1;
  uint64_t storage_base = 0;   ///< default: data
  uint64_t storage_bytes = 0;  ///< default: what a dense tensor needs
  uint64_t stream = 0;
  format::Padding padding = format::Padding::kNone;
  int32_t pad_index = 0;
};

struct OpSpec {
  uint32_t scope = 0, call = 0, op = 0;
  format::Phase phase = format::Phase::kForward;
  bool declared_alias = false, schema_known = false;
  std::vector<convtrace_op_operand> operands = {};
};

class MessageBatch {
 public:
  MessageBatch& scope(uint32_t scope, uint32_t call, bool enter = true,
                      format::Phase phase = format::Phase::kForward) {
    convtrace_scope message{};
    message.phase = static_cast<uint8_t>(phase);
    message.enter = enter ? 1 : 0;
    message.scope = scope;
    message.call = call;
    return add(CONVTRACE_MSG_SCOPE, message);
  }

  MessageBatch& step(uint32_t index) {
    convtrace_step message{};
    message.index = index;
    return add(CONVTRACE_MSG_STEP, message);
  }

  MessageBatch& tensor(const TensorSpec& spec) {
    convtrace_tensor message{};
    message.phase = static_cast<uint8_t>(spec.phase);
    message.capture = static_cast<uint8_t>(spec.capture);
    message.device_type = static_cast<uint8_t>(spec.device.type);
    message.device_index = spec.device.index;
    message.dtype = static_cast<uint8_t>(spec.dtype);
    message.rank = static_cast<uint8_t>(spec.shape.size());
    message.padding = static_cast<uint8_t>(spec.padding);
    message.pad_index = spec.pad_index;
    message.scope = spec.scope;
    message.call = spec.call;
    message.slot = spec.slot;
    message.op = spec.op;
    message.version = spec.version;
    message.data = reinterpret_cast<uint64_t>(spec.data);
    message.storage = spec.storage;
    message.storage_base = spec.storage_base != 0 ? spec.storage_base : message.data;
    std::vector<int64_t> strides = spec.strides;
    int64_t elements = 1;
    if (strides.empty()) {
      strides.resize(spec.shape.size());
      for (size_t i = spec.shape.size(); i-- > 0;) {
        strides[i] = elements;
        elements *= spec.shape[i];
      }
    }
    message.storage_bytes = spec.storage_bytes != 0
                                ? spec.storage_bytes
                                : static_cast<uint64_t>(elements) * element_bytes(spec.dtype);
    message.stream = spec.stream;
    std::vector<int64_t> dims = spec.shape;
    dims.insert(dims.end(), strides.begin(), strides.end());
    return add(CONVTRACE_MSG_TENSOR, message, std::as_bytes(std::span(dims)));
  }

  MessageBatch& op_begin(const OpSpec& spec) {
    return add(CONVTRACE_MSG_OP_BEGIN, op_message(spec));
  }
  MessageBatch& op(const OpSpec& spec) {
    convtrace_op message = op_message(spec);
    message.operand_count = static_cast<uint32_t>(spec.operands.size());
    return add(CONVTRACE_MSG_OP, message, std::as_bytes(std::span(spec.operands)));
  }

  MessageBatch& op_stack(const std::vector<uint32_t>& frames) {
    return frames_message(CONVTRACE_MSG_OP_STACK, 0, frames);
  }
  MessageBatch& storage_dead(uint64_t storage, const std::vector<uint32_t>& frames = {}) {
    return frames_message(CONVTRACE_MSG_STORAGE_DEAD, storage, frames);
  }

  MessageBatch& fact(uint32_t name, uint32_t value) {
    convtrace_fact message{};
    message.name = name;
    message.value = value;
    return add(CONVTRACE_MSG_FACT, message);
  }

  MessageBatch& event_fact(uint32_t scope, uint32_t name, std::string_view value) {
    convtrace_event_fact message{};
    message.scope = scope;
    message.name = name;
    message.value_bytes = static_cast<uint32_t>(value.size());
    std::vector<char> padded(value.begin(), value.end());
    padded.resize((value.size() + 7) / 8 * 8);
    return add(CONVTRACE_MSG_EVENT_FACT, message, std::as_bytes(std::span(padded)));
  }

  MessageBatch& loss(format::LossReason reason, uint64_t count) {
    convtrace_loss message{};
    message.reason = static_cast<uint8_t>(reason);
    message.count = count;
    return add(CONVTRACE_MSG_LOSS, message);
  }

  MessageBatch& spent(uint64_t ns) {
    convtrace_spent message{};
    message.ns = ns;
    return add(CONVTRACE_MSG_SPENT, message);
  }

  MessageBatch& collective(const convtrace_collective& message) {
    return add(CONVTRACE_MSG_COLLECTIVE, message);
  }
  MessageBatch& collective_values(uint64_t id, uint32_t step) {
    convtrace_collective_values message{};
    message.id = id;
    message.step = step;
    return add(CONVTRACE_MSG_COLLECTIVE_VALUES, message);
  }

  MessageBatch& kernel(uint64_t function, uint32_t name,
                       std::span<const convtrace_kernel_param> params) {
    convtrace_kernel message{};
    message.function = function;
    message.name = name;
    message.param_count = static_cast<uint32_t>(params.size());
    return add(CONVTRACE_MSG_KERNEL, message, std::as_bytes(params));
  }

  MessageBatch& diagnostic(format::Level level, uint32_t site, uint32_t text) {
    convtrace_diagnostic message{};
    message.level = static_cast<uint8_t>(level);
    message.site = site;
    message.text = text;
    return add(CONVTRACE_MSG_DIAGNOSTIC, message);
  }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static convtrace_op op_message(const OpSpec& spec) {
    convtrace_op message{};
    message.phase = static_cast<uint8_t>(spec.phase);
    message.declared_alias = spec.declared_alias ? 1 : 0;
    message.schema_known = spec.schema_known ? 1 : 0;
    message.scope = spec.scope;
    message.call = spec.call;
    message.op = spec.op;
    return message;
  }
  template <typename Fixed>
  MessageBatch& add(uint16_t kind, Fixed fixed, std::span<const std::byte> rest = {}) {
    const size_t size = (sizeof fixed + rest.size() + 7) / 8 * 8;
    fixed.message = {kind, 0, static_cast<uint32_t>(size)};
    const size_t start = bytes_.size();
    bytes_.resize(start + size);
    std::memcpy(bytes_.data() + start, &fixed, sizeof fixed);
    if (!rest.empty()) std::memcpy(bytes_.data() + start + sizeof fixed, rest.data(), rest.size());
    return *this;
  }

  MessageBatch& frames_message(uint16_t kind, uint64_t storage,
                               const std::vector<uint32_t>& frames) {
    convtrace_frames message{};
    message.storage = storage;
    message.frame_count = static_cast<uint32_t>(frames.size());
    return add(kind, message, std::as_bytes(std::span(frames)));
  }

  std::vector<std::byte> bytes_;
};

/// An operand that covers its whole storage.
inline convtrace_op_operand operand(uint32_t slot, bool is_output, uint64_t storage, uint64_t base,
                                    uint64_t bytes) {
  convtrace_op_operand one{};
  one.slot = slot;
  one.is_output = is_output ? 1 : 0;
  one.data = one.storage_base = base;
  one.bytes = one.storage_bytes = bytes;
  one.storage = storage;
  return one;
}

}  // namespace convtrace::test
