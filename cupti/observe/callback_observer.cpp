#include "cupti/observe/callback_observer.h"

#include <algorithm>
#include <array>
#include <bit>

#include "cupti/driver/mutation.h"

namespace convtrace::cupti {
namespace {

bool is_exit(const CUpti_CallbackData& call) { return call.callbackSite == CUPTI_API_EXIT; }

bool succeeded(const CUpti_CallbackData& call) {
  return is_exit(call) && call.functionReturnValue != nullptr &&
         *static_cast<const CUresult*>(call.functionReturnValue) == CUDA_SUCCESS;
}

const char* name_of(const LaunchInfo& launch, const CUpti_CallbackData& call) {
  if (launch.function == nullptr) return "cuGraphLaunch";
  return call.symbolName == nullptr ? "(unnamed)" : call.symbolName;
}

template <typename... Decoders>
bool decodes(const CallbackEntry& entry) {
  return (std::holds_alternative<Decoders>(entry.decoder) || ...);
}

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // clang before 17 does not deduce aggregates

}  // namespace

void CallbackObserver::on_driver_call(const CallbackEntry& entry,
                                      const CUpti_CallbackData& call) noexcept {
  if (!state_.active.load(std::memory_order_acquire)) return;
  count(entry, call);
  const bool has_params = entry.cbid != CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize;
  if (has_params && call.functionParams == nullptr) return;
  try {
    observe(entry, call);
  } catch (...) {  // no memory: this call is not recorded
  }
}

/// The gate counts its launches. The host writes managed memory without a call.
void CallbackObserver::count(const CallbackEntry& entry, const CUpti_CallbackData& call) noexcept {
  if (entry.cbid == CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged || decodes<SharingCall>(entry))
    state_.work.stop();
  if (gate_.inside() || decodes<ContextCall, HandleDecoder, TensorMapDecoder>(entry)) return;
  if (MUTATION(counter_ignores_copies) && decodes<ExitDecoder>(entry)) return;
  if (MUTATION(counter_ignores_orders) && decodes<SyncDecoder>(entry)) return;
  if (!is_exit(call)) {
    ++begun_;
    state_.work.begin();
  } else if (begun_ > 0) {  // else CUPTI was subscribed while the call was under way
    --begun_;
    state_.work.end();
  }
}

void CallbackObserver::observe(const CallbackEntry& entry, const CUpti_CallbackData& call) {
  const void* params = call.functionParams;
  std::visit(Overloaded{
                 [&](ContextCall) {
                   if (succeeded(call)) (void)device_of(call);
                 },
                 [&](ContextEnd) {
                   if (succeeded(call)) state_.stats.forgotten_ended();
                 },
                 [](SharingCall) {},
                 [&](LaunchDecoder decode) { observe_launch(decode(params), entry, call); },
                 [&](const LaunchBatch& batch) {
                   for (size_t i = 0; i < batch.count(params); ++i)
                     observe_launch(batch.decode(params, i), entry, call);
                 },
                 [&](ExitDecoder exit) {
                   if (succeeded(call)) memory_changed(exit.decode(params), entry, call);
                 },
                 [&](const MemoryBatch& batch) {
                   if (!succeeded(call)) return;
                   for (size_t i = 0; i < batch.count(params); ++i)
                     memory_changed(batch.decode(params, i), entry, call);
                 },
                 [&](MemoryDecoder decode) { observe_memory(decode(params), entry, call); },
                 [&](HandleDecoder decode) {
                   const HandleChange change = decode(params);
                   // Forget before the driver may hand the same handle out again.
                   const bool unload = change.handles == nullptr;
                   if (unload ? !is_exit(call) : succeeded(call)) state_.functions.apply(change);
                 },
                 [&](TensorMapDecoder decode) {
                   const TensorMapChange change = decode(params);
                   if (succeeded(call)) state_.tensor_maps.learn(change.map, change.address);
                 },
                 [&](CaptureDecoder decode) {
                   CaptureChange change = decode(params);
                   change.stream = effective_stream(change.stream, entry.per_thread);
                   const bool now = change.begins ? succeeded(call) : is_exit(call);
                   if (now) observe_capture(change, call);
                 },
                 [&](SyncDecoder decode) {
                   if (succeeded(call)) observe_sync(decode(params), entry, call);
                 },
                 [&](EndDecoder end) {
                   if (!is_exit(call)) observe_sync(end.decode(params), entry, call);
                 },
             },
             entry.decoder);
}

void CallbackObserver::observe_launch(const LaunchInfo& launch, const CallbackEntry& entry,
                                      const CUpti_CallbackData& call) {
  if (gate_.inside()) {
    if (!is_exit(call)) gate_.cross_check(launch);
    return;
  }
  if (!is_exit(call)) return;
  outside_gate_.fetch_add(1, std::memory_order_relaxed);
  if (!state_.options.record_launches) return;
  const Position position = state_.position();
  format::Launch event;
  event.header.step = position.step;
  event.place = position.place;
  std::array<format::Operand, kMaxOperands> operands;
  // The driver must not be called here. Operands are found if the gate has asked for the facts
  // before.
  if (const FunctionInfo* function = state_.functions.known(launch.function)) {
    event.kernel = function->kernel;
    const bool memory_known = state_.options.apply_memory_reports == nullptr ||
                              state_.options.apply_memory_reports(false);
    const size_t count = scan_operands(launch, function->words, *state_.options.addresses,
                                       state_.tensor_maps, operands);
    event.operands = std::span(operands).first(count);
    if (!memory_known) doubt(std::span(operands).first(count));
  } else {
    event.kernel = state_.functions.define(name_of(launch, call));
  }
  std::copy_n(launch.grid, 3, event.grid);
  std::copy_n(launch.block, 3, event.block);
  event.shared_bytes = launch.shared_bytes;
  event.stream = std::bit_cast<uint64_t>(effective_stream(launch.stream, entry.per_thread));
  event.device = device_of(call);
  if (succeeded(call) && state_.options.compute_values)
    state_.uses.launched({event.stream, event.device}, event.operands);
  event.sampled =
      succeeded(call) ? format::SampleOutcome::kObservedOnly : format::SampleOutcome::kLaunchFailed;
  state_.options.sink->emit(event);
}

MemoryRecorder::At CallbackObserver::at(const CallbackEntry& entry,
                                        const CUpti_CallbackData& call) {
  MemoryRecorder::At at;
  at.device = {format::Device::Type::kCuda, device_of(call)};
  at.step = state_.position().step;
  at.per_thread = entry.per_thread;
  at.context = call.context;
  return at;
}

/// A captured call has not run: it became a memory node, which every launch of the graph counts.
bool CallbackObserver::is_captured(const MemoryChange& change, const CallbackEntry& entry) const {
  return state_.captures.is_capturing(effective_stream(change.stream, entry.per_thread));
}

void CallbackObserver::memory_changed(const MemoryChange& change, const CallbackEntry& entry,
                                      const CUpti_CallbackData& call) {
  if (is_captured(change, entry)) return;
  if (change.kind == MemoryChange::Kind::kWait)
    return observe_sync({format::SyncKind::kStreamWait, change.stream}, entry, call);
  memory_.leave(change, at(entry, call), true, 0);
  note_write(change, entry, call);
  if (change.may_wait) observe_copy_wait(change, entry, call);
}

void CallbackObserver::note_write(const MemoryChange& change, const CallbackEntry& entry,
                                  const CUpti_CallbackData& call) {
  using Kind = MemoryChange::Kind;
  if (!state_.options.compute_values) return;
  const bool writes =
      change.kind == Kind::kCopy || change.kind == Kind::kSet || change.kind == Kind::kToHost;
  if (!writes) return;
  const CUstream stream = effective_stream(change.stream, entry.per_thread);
  state_.uses.wrote({std::bit_cast<uint64_t>(stream), device_of(call)}, change.address);
}

void CallbackObserver::observe_copy_wait(const MemoryChange& change, const CallbackEntry& entry,
                                         const CUpti_CallbackData& call) {
  const auto on_device = [this](uint64_t address) {
    const auto range = state_.options.addresses->find(address);
    return range && range->source != format::MemorySource::kHost;
  };
  if (!on_device(change.address) || !on_device(change.source))
    observe_sync({format::SyncKind::kStreamDone, change.stream}, entry, call);
}

void CallbackObserver::observe_sync(SyncChange change, const CallbackEntry& entry,
                                    const CUpti_CallbackData& call) {
  change.stream = effective_stream(change.stream, entry.per_thread);
  if (!state_.captures.apply(change)) emit_sync(change, call);
}

void CallbackObserver::emit_sync(const SyncChange& change, const CUpti_CallbackData& call) {
  format::Sync event;
  event.header.step = state_.position().step;
  event.kind = change.kind;
  event.device = change.context == nullptr ? device_of(call) : device_of(change.context, 0);
  event.stream = std::bit_cast<uint64_t>(change.stream);
  event.event = std::bit_cast<uint64_t>(change.event);
  event.flags = change.flags;
  if (state_.options.compute_values) state_.uses.order(event);
  state_.options.sink->emit(event);
}

void CallbackObserver::observe_capture(const CaptureChange& change,
                                       const CUpti_CallbackData& call) {
  state_.captures.apply(change, call.context);
  // Allocations that were made before must come before this event.
  if (state_.options.apply_memory_reports != nullptr)
    (void)state_.options.apply_memory_reports(true);
  emit_sync({change.begins ? format::SyncKind::kCaptureBegin : format::SyncKind::kCaptureEnd,
             change.stream},
            call);
}

void CallbackObserver::observe_memory(const MemoryChange& change, const CallbackEntry& entry,
                                      const CUpti_CallbackData& call) {
  if (is_captured(change, entry)) return;
  uint64_t unused = 0;
  uint64_t& generation = call.correlationData == nullptr ? unused : *call.correlationData;
  if (!is_exit(call)) {
    generation = memory_.enter(change, at(entry, call));
  } else {
    memory_.leave(change, at(entry, call), succeeded(call), generation);
    if (succeeded(call)) note_write(change, entry, call);
  }
}

void CallbackObserver::freed(uint64_t address, const CurrentContext& current) {
  MemoryChange change;
  change.kind = MemoryChange::Kind::kFree;
  change.address = address;
  MemoryRecorder::At at;
  at.device = {format::Device::Type::kCuda, current.device};
  at.step = state_.position().step;
  at.context = current.context;
  (void)memory_.enter(change, at);
}

/// As long as CUPTI has no id for a primary context it is not initialized, and loading a module into
/// it returns CUDA_ERROR_CONTEXT_IS_DESTROYED. Source: CUDA Driver API, CUresult; seen on an H100 with
/// driver 580 at the exit of the CUDA runtime's cuCtxSetCurrent.
uint8_t CallbackObserver::device_of(CUcontext context, uint32_t id) {
  if (context == nullptr) return 0;
  if (const auto known = state_.contexts.device_of(context)) return *known;
  uint32_t ordinal = 0;
  if (cupti_.get_device_id == nullptr || cupti_.get_device_id(context, &ordinal) != CUPTI_SUCCESS)
    return 0;
  const auto device = static_cast<uint8_t>(ordinal);
  if (id != 0) state_.use_context(context, device);
  return device;
}

void CallbackObserver::on_context_end(CUcontext context) noexcept {
  try {
    state_.forget_context(context);
    if (state_.active.load(std::memory_order_acquire))
      memory_.context_ended(context, state_.position().step);
  } catch (...) {
  }
}

void CallbackObserver::on_cupti_failure(const CUpti_StateData& failure) noexcept {
  const char* message = failure.notification.message;
  char text[256];
  snprintf(text, sizeof text,
           "CUPTI ended itself after an error (%s): allocations and launches outside the gate are "
           "no longer seen",
           message == nullptr ? "no message" : message);
  gate_.expect_callbacks(false);
  report(state_, messages::kCuptiEnded, text);
}

}  // namespace convtrace::cupti
