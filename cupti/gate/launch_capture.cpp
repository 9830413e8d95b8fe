#include "cupti/gate/launch_capture.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "cupti/driver/mutation.h"
#include "cupti/driver/own_calls.h"

namespace convtrace::cupti {
namespace {

using format::SampleOutcome;

/// Takes 16 us to read at 4.2 TB/s, the time of a few launches.
constexpr uint64_t kMostUnreported = uint64_t{64} << 20;

bool is_named_stream(CUstream stream) {
  return stream != nullptr && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

/// Only a parameter of the size of a pointer is taken for one; words of a struct would be guesses.
uint64_t read_pointer(const LaunchInfo& launch, const FunctionInfo& function, uint32_t param) {
  uint64_t address = 0;
  if (param >= function.params.size()) return 0;
  const ParamLayout& place = function.params[param];
  const auto bytes = LaunchParams(launch).bytes_of(param, place.offset, place.bytes);
  if (bytes.size() == sizeof address) std::memcpy(&address, bytes.data(), sizeof address);
  return address;
}

/// @return a compiler's facts about a parameter; null if there are none.
const KernelSignature::Param* typed_param(const FunctionInfo& function, uint32_t param) {
  const KernelSignature* const signature = function.signature.get();
  return signature != nullptr && param < signature->params.size() ? &signature->params[param]
                                                                  : nullptr;
}

void count_loss(const CudaState& state, const Position& position, SampleOutcome why,
                size_t outputs) {
  format::Loss loss;
  switch (why) {
    case SampleOutcome::kCapturing:
    case SampleOutcome::kWrongStream: loss.reason = format::LossReason::kStreamUnsafe; break;
    case SampleOutcome::kRingFull: loss.reason = format::LossReason::kRingFull; break;
    case SampleOutcome::kGpuWorkOff: loss.reason = format::LossReason::kGpuWorkOff; break;
    default: return;  // the Launch event shows it
  }
  loss.header.step = position.step;
  loss.count = outputs;
  state.options.sink->emit(loss);
}

bool asks_now(const settings::Rule& rule, const Position& position) {
  return position.capture && rule.steps.contains(position.step);
}

}  // namespace

SampleOutcome can_launch(const CudaState& state, CUcontext context, CUstream stream) noexcept {
  if (!state.gpu_work.load(std::memory_order_relaxed)) return SampleOutcome::kGpuWorkOff;
  if (context == nullptr) return SampleOutcome::kNotReady;
  if (MUTATION(launch_while_capturing)) return SampleOutcome::kSampled;
  // While a capture is active even a query about the legacy stream is an error, so this check is
  // first.
  if (state.captures.any_active()) return SampleOutcome::kCapturing;
  const OwnCalls own;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = state.driver.stream_is_capturing(stream, &status);
  if (asked != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
    return SampleOutcome::kCapturing;
  if (!is_named_stream(stream)) return SampleOutcome::kSampled;
  CUcontext owner = nullptr;
  const bool known = state.driver.stream_get_ctx(stream, &owner) == CUDA_SUCCESS;
  return known && owner == context ? SampleOutcome::kSampled : SampleOutcome::kWrongStream;
}

bool is_readable(const MemoryRange& range, uint8_t device) noexcept {
  if (range.source == format::MemorySource::kMulticast) return false;
  if (range.source == format::MemorySource::kHost) return true;
  return range.device == format::Device{format::Device::Type::kCuda, device};
}

void LaunchCapture::collect(Purpose purpose, const LaunchInfo& launch, const FunctionInfo& function,
                            Operands operands, const std::optional<format::Place>& place) {
  place_ = place.value_or(position_.place);
  const format::StringId scope = place_.scope;
  const std::string_view name = state_.options.definitions->text(scope);
  const size_t first = requests_.size();
  bool found = false;
  for (const settings::Rule* rule : function.rules) {
    if (!asks_now(*rule, position_) || !state_.options.rules->in_scope(*rule, scope.value, name))
      continue;
    asked_ = true;
    add_inputs(*rule, launch, function);
    for (const uint32_t param : rule->outputs) {
      const auto piece = piece_at(read_pointer(launch, function, param));
      if (piece)
        add(make_request(*rule, *piece, function, param, slot_of(function, param, 0)), first);
    }
    if (!rule->outputs_auto || std::exchange(found, true)) continue;
    find_outputs(purpose, *rule, function, operands, first);
  }
}

/// Captures words that are known to point to outputs, and probes words that may.
void LaunchCapture::find_outputs(Purpose purpose, const settings::Rule& rule,
                                 const FunctionInfo& function, Operands operands, size_t first) {
  using Wish = OutputLearner::Wish;
  OutputLearner& learner = *function.outputs;
  const bool probe_all = purpose == Purpose::kLaunch && learner.begin_launch();
  std::vector<uint64_t> begins;
  for (const format::Operand& operand : operands) begins.push_back(operand.address);
  std::ranges::sort(begins);
  for (const format::Operand& operand : operands) {
    const KernelSignature::Param* const typed = typed_param(function, operand.param);
    if (function.signature != nullptr && (typed == nullptr || !typed->is_pointer)) continue;
    const size_t word = (function.params[operand.param].offset + operand.word) / sizeof(uint64_t);
    const OutputLearner::Evidence known = learner.evidence(word);
    Wish wish = learner.wish(word, probe_all);
    if (purpose != Purpose::kLaunch)
      wish = known.probes == 0 || known.is_output() ? Wish::kTake : Wish::kNothing;
    if (wish == Wish::kNothing) continue;
    auto piece = piece_at(operand.address);
    if (!piece) continue;
    // The value ends where another operand of the same block begins, which is captured by itself.
    const auto next = std::ranges::upper_bound(begins, operand.address);
    if (next != begins.end()) piece->bytes = std::min(piece->bytes, *next - operand.address);
    DeviceRequest request = make_request(rule, *piece, function, operand.param,
                                         slot_of(function, operand.param, operand.word));
    request.event.looks = known.probes;
    request.event.changes = known.changes;
    if (wish == Wish::kProbe)
      request.probe = {&learner, state_.last_probe.fetch_add(1) + 1, static_cast<uint32_t>(word)};
    add(request, first);
  }
}

std::optional<LaunchCapture::Piece> LaunchCapture::piece_at(uint64_t address) const {
  const auto range = state_.options.addresses->find(address);
  if (!range || range->freed || !is_readable(*range, device_)) return std::nullopt;
  uint64_t bytes = range->base + range->bytes - address;
  // If no allocator reports its blocks, one range may be most of the device (JAX).
  if (range->source != format::MemorySource::kFramework && bytes > kMostUnreported &&
      !MUTATION(read_without_end)) {
    bytes = kMostUnreported;
    if (!state_.values_cut.exchange(true))
      report(state_, messages::kValuesCut,
             "values of memory whose blocks no allocator reports are those of the first 64 MiB");
  }
  return Piece{address, *range, bytes};
}

format::StringId LaunchCapture::slot_of(const FunctionInfo& function, uint32_t param,
                                        uint32_t word) const {
  const KernelSignature::Param* const typed = typed_param(function, param);
  if (typed != nullptr && word == 0) return typed->slot;
  std::string slot = "arg:" + std::to_string(param);
  if (word != 0) slot += '+' + std::to_string(word);
  return state_.options.definitions->intern(slot);
}

DeviceRequest LaunchCapture::make_request(const settings::Rule& rule, const Piece& piece,
                                          const FunctionInfo& function, uint32_t param,
                                          format::StringId slot) {
  const KernelSignature::Param* const typed = typed_param(function, param);
  const format::DType dtype =
      rule.dtype.value_or(typed != nullptr ? typed->dtype : format::DType::kUnknown);
  const uint64_t element = format::element_bytes(dtype);
  const uint64_t count = piece.bytes / element;
  DeviceRequest request;
  request.rule = &rule;
  request.samples = rule.samples.value_or(state_.options.samples);
  request.view = stats::dense_view(std::bit_cast<const void*>(piece.address), dtype, count);
  format::TensorStats& event = request.event;
  event.header.step = position_.step;
  event.place = place_;
  event.slot = slot;
  event.kernel = function.kernel;
  event.device = {format::Device::Type::kCuda, device_};
  event.dtype = dtype;
  event.extent = format::Extent::kBlock;
  event.capture = rule.capture.value_or(format::Capture::kStats);
  event.value.offset = piece.address - piece.range.base;
  event.value.generation = piece.range.generation;
  event.address = piece.address;
  event.bytes = count * element;
  return request;
}

/// Inputs must be read before the launch, which may overwrite them.
void LaunchCapture::add_inputs(const settings::Rule& rule, const LaunchInfo& launch,
                               const FunctionInfo& function) {
  for (const uint32_t param : rule.inputs) {
    const auto piece = piece_at(read_pointer(launch, function, param));
    if (!piece) continue;
    if (all_written_ || written_.contains(piece->range.generation)) {
      ++unknown_inputs_;
      continue;
    }
    before_.push_back(
        make_request(rule, *piece, function, param,
                     state_.options.definitions->intern("input:" + std::to_string(param))));
    if (before_.back().event.bytes == 0) before_.pop_back();
  }
}

void LaunchCapture::assume_written(Operands operands) {
  for (const format::Operand& operand : operands) written_.insert(operand.generation);
}

/// @param first  index of this kernel's first request: the first rule that names an operand
/// applies.
void LaunchCapture::add(const DeviceRequest& request, size_t first) {
  const bool known =
      std::any_of(requests_.begin() + static_cast<ptrdiff_t>(first), requests_.end(),
                  [&](const DeviceRequest& r) { return r.event.slot == request.event.slot; });
  if (known || request.event.bytes == 0) return;
  requests_.push_back(request);
  state_.options.rules->used(*request.rule);
  if (request.probe.learner == nullptr) return;
  DeviceRequest& before = before_.emplace_back(request);
  before.probe.before = true;
  before.event.capture = format::Capture::kHash;
}

void LaunchCapture::submit_before(CUcontext context, CUstream stream) noexcept {
  if (before_.empty()) return;
  refused_ = launch(context, before_, stream);
  if (refused_ == SampleOutcome::kSampled) return;
  size_t lost = static_cast<size_t>(std::ranges::count_if(
      before_, [](const DeviceRequest& request) { return request.probe.learner == nullptr; }));
  // A known output is captured without a probe.
  lost += std::erase_if(requests_, [](DeviceRequest& request) {
    const Probe probe = std::exchange(request.probe, {});
    return probe.learner != nullptr && !probe.learner->evidence(probe.word).is_output();
  });
  count_loss(state_, position_, refused_, lost);
}

void LaunchCapture::keep_last_of_each_buffer() {
  std::unordered_set<uint64_t> seen;
  const auto overwritten = [&seen](const DeviceRequest& request) {
    return !seen.insert(request.event.address).second;
  };
  std::ranges::reverse(requests_);
  std::erase_if(requests_, overwritten);
  std::ranges::reverse(requests_);
}

SampleOutcome LaunchCapture::launch(CUcontext context, std::span<const DeviceRequest> batch,
                                    CUstream stream) noexcept {
  const SampleOutcome outcome = can_launch(state_, context, stream);
  if (outcome != SampleOutcome::kSampled) return outcome;
  std::optional<ContextScope> scope;
  if (elsewhere_ && scope.emplace(state_.driver, context).result() != CUDA_SUCCESS)
    return SampleOutcome::kWrongStream;
  const OwnCalls own;
  return state_.stats.submit(context, batch, stream);
}

SampleOutcome LaunchCapture::submit(CUcontext context, CUstream stream) noexcept {
  if (!asked_) return SampleOutcome::kNotAsked;
  if (requests_.empty()) return before_.empty() ? SampleOutcome::kNoOutput : refused_;
  if (MUTATION(batch_behind_return)) {
    static std::vector<DeviceRequest> of_last_launch;
    requests_.swap(of_last_launch);
  }
  const SampleOutcome outcome = launch(context, requests_, stream);
  count_loss(state_, position_, outcome, requests_.size());
  return outcome;
}

}  // namespace convtrace::cupti
