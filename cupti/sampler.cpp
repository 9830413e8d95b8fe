#include "cupti/sampler.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <unordered_set>

#include "cupti/own_calls.h"

namespace convtrace::cupti {
namespace {

using format::NotSampled;

bool is_named_stream(CUstream stream) {
  return stream != nullptr && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

/// A parameter is a pointer for us if it has the size of one: a struct's words would be guesses.
uint64_t read_pointer(const LaunchInfo& launch, const FunctionInfo& function, uint32_t param) {
  uint64_t address = 0;
  if (param >= function.params.size()) return 0;
  const ParamLayout& place = function.params[param];
  const auto bytes = LaunchParams(launch).bytes_of(param, place.offset, place.bytes);
  if (bytes.size() == sizeof address) std::memcpy(&address, bytes.data(), sizeof address);
  return address;
}

void count_loss(const CudaState& state, const Position& position, NotSampled why, size_t outputs) {
  format::Loss loss;
  switch (why) {
    case NotSampled::kCapturing:
    case NotSampled::kWrongStream:
      loss.reason = format::LossReason::kStreamUnsafe;
      break;
    case NotSampled::kRingFull:
      loss.reason = format::LossReason::kRingFull;
      break;
    case NotSampled::kGpuWorkOff:
      loss.reason = format::LossReason::kGpuWorkOff;
      break;
    default:
      return;  // the Launch event says it all
  }
  loss.header.step = position.step;
  loss.count = outputs;
  state.options.sink->emit(loss);
}

}  // namespace

NotSampled can_launch(const CudaState& state, CUcontext context, CUstream stream) noexcept {
  if (!state.gpu_work.load(std::memory_order_relaxed)) return NotSampled::kGpuWorkOff;
  if (context == nullptr) return NotSampled::kNotReady;
  // While a capture is active even asking about the legacy stream is an error, so this comes first.
  if (state.captures.any_active()) return NotSampled::kCapturing;
  const OwnCalls own;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = state.driver.stream_is_capturing(stream, &status);
  if (asked != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
    return NotSampled::kCapturing;
  if (!is_named_stream(stream)) return NotSampled::kSampled;
  CUcontext owner = nullptr;
  const bool known = state.driver.stream_get_ctx(stream, &owner) == CUDA_SUCCESS;
  return known && owner == context ? NotSampled::kSampled : NotSampled::kWrongStream;
}

bool is_readable(const MemoryRange& range, uint8_t device) noexcept {
  if (range.source == format::MemorySource::kMulticast) return false;
  if (range.source == format::MemorySource::kHost) return true;
  return range.device == format::Device{format::Device::Type::kCuda, device};
}

bool asks_now(const settings::Rule& rule, const Position& position) noexcept {
  return position.capture && rule.steps.contains(position.step);
}

void Sampler::collect(const LaunchInfo& launch, const FunctionInfo& function) {
  collect_if(launch, function,
             [this](const settings::Rule& rule) { return asks_now(rule, position_); });
}

void Sampler::collect_for_replays(const LaunchInfo& launch, const FunctionInfo& function) {
  collect_if(launch, function, [](const settings::Rule&) { return true; });
}

template <typename Wanted>
void Sampler::collect_if(const LaunchInfo& launch, const FunctionInfo& function, Wanted wanted) {
  const format::StringId scope = position_.place.scope;
  const std::string_view name = state_.options.definitions->text(scope);
  for (const settings::Rule* rule : function.rules) {
    if (!wanted(*rule) || !state_.options.rules->in_scope(*rule, scope.value, name)) continue;
    asked_ = true;
    if (rule->outputs_auto) {
      // Signatures do not tell outputs from inputs: take every pointer, its slot says which.
      for (uint32_t param = 0; param < function.params.size(); ++param)
        add(*rule, param, launch, function);
    } else {
      for (const uint32_t param : rule->outputs) add(*rule, param, launch, function);
    }
  }
}

void Sampler::add(const settings::Rule& rule, uint32_t param, const LaunchInfo& launch,
                  const FunctionInfo& function) {
  const uint64_t address = read_pointer(launch, function, param);
  const auto range = state_.options.addresses->find(address);
  if (!range || range->freed || !is_readable(*range, device_)) return;
  const format::DType dtype = rule.dtype.value_or(format::DType::kUnknown);
  const uint64_t element = format::element_bytes(dtype);
  const uint64_t offset = address - range->base;
  const uint64_t count = (range->bytes - offset) / element;
  if (count == 0) return;

  DeviceRequest request;
  request.rule = &rule;
  request.view = stats::dense_view(std::bit_cast<const void*>(address), dtype, count);
  format::TensorStats& event = request.event;
  event.header.step = position_.step;
  event.place = position_.place;
  event.slot = state_.options.definitions->intern("arg:" + std::to_string(param));
  event.kernel = function.kernel;
  event.device = {format::Device::Type::kCuda, device_};
  event.dtype = dtype;
  event.extent = format::Extent::kBlock;
  event.capture = rule.capture.value_or(format::Capture::kStats);
  event.value.offset = offset;
  event.value.generation = range->generation;
  event.address = address;
  event.bytes = count * element;
  requests_.push_back(request);
  state_.options.rules->used(rule);
}

void Sampler::keep_last_of_each_buffer() {
  std::unordered_set<uint64_t> seen;
  const auto overwritten = [&seen](const DeviceRequest& request) {
    return !seen.insert(request.event.address).second;
  };
  std::ranges::reverse(requests_);
  std::erase_if(requests_, overwritten);
  std::ranges::reverse(requests_);
}

void Sampler::capture(CUcontext context, CUstream stream) {
  if (requests_.empty() || !state_.gpu_work.load(std::memory_order_relaxed)) return;
  const NotSampled outcome = state_.graph_stats.capture(context, stream, requests_);
  if (outcome != NotSampled::kCaptured)
    count_loss(state_, position_, NotSampled::kCapturing, requests_.size());
}

NotSampled Sampler::submit(CUcontext context, CUstream stream) noexcept {
  if (!asked_) return NotSampled::kNotAsked;
  if (requests_.empty()) return NotSampled::kNoOutput;
  NotSampled outcome = can_launch(state_, context, stream);
  if (outcome == NotSampled::kSampled) {
    const OwnCalls own;
    outcome = state_.stats.submit(context, requests_, stream);
  }
  count_loss(state_, position_, outcome, requests_.size());
  return outcome;
}

}  // namespace convtrace::cupti
