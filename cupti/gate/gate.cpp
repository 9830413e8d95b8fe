#include "cupti/gate/gate.h"

#include <algorithm>
#include <bit>

#include "cupti/driver/cuda_error.h"
#include "cupti/gate/graph_replay.h"

namespace convtrace::cupti {
namespace {

/// After so many launches in a row without a callback, CUPTI has ended without a message.
constexpr uint32_t kSilence = 64;

}  // namespace

void Gate::before(const LaunchInfo& launch, bool per_thread, Pass& pass) noexcept {
  try {
    describe(launch, per_thread, pass);
    pass.launch = &launch;
  } catch (...) {  // no memory: this launch is not recorded
  }
}

/// The block that a kernel writes may have been allocated just before, so reports are applied
/// first.
bool Gate::apply_memory_reports(bool all) const noexcept {
  return state_.options.apply_memory_reports == nullptr || state_.options.apply_memory_reports(all);
}

void Gate::describe(const LaunchInfo& launch, bool per_thread, Pass& pass) {
  format::Launch& event = pass.event;
  pass.position = state_.position();
  event.header.step = pass.position.step;
  event.place = pass.position.place;
  std::copy_n(launch.grid, 3, event.grid);
  std::copy_n(launch.block, 3, event.block);
  event.shared_bytes = launch.shared_bytes;
  event.stream = std::bit_cast<uint64_t>(effective_stream(launch.stream, per_thread));
  const CurrentContext current =
      pass.by_stream ? state_.context_of(launch.stream) : state_.current_context();
  pass.context = current.context;
  event.device = current.device;
  pass.into_graph =
      state_.captures.any_active() && state_.is_capturing(std::bit_cast<CUstream>(event.stream));
  if (launch.function == nullptr) {
    event.kernel = state_.functions.define("cuGraphLaunch");
    pass.graph = state_.graphs.find(launch.graph);
    pass.memory_known =
        apply_memory_reports(state_.options.compute_values && !state_.options.rules->empty());
    if (pass.graph == nullptr || pass.into_graph) return;
    LaunchCapture& values = pass.values.emplace(state_, pass.position, pass.event.device);
    collect_graph(state_, *pass.graph, values);
    return values.submit_before(pass.context, std::bit_cast<CUstream>(event.stream));
  }
  const FunctionInfo& function = state_.functions.resolve(launch.function);
  event.kernel = function.kernel;
  pass.memory_known = apply_memory_reports(!function.rules.empty());
  const std::span<format::Operand> operands = pass.operands();
  const size_t count = scan_operands(launch, function.words, *state_.options.addresses,
                                     state_.tensor_maps, operands);
  event.operands = operands.first(count);
  if (!pass.memory_known) doubt(operands.first(count));
  if (function.may_wait) event.sampled = format::SampleOutcome::kMayWait;
  if (function.rules.empty() || pass.into_graph) return;
  LaunchCapture& values = pass.values.emplace(state_, pass.position, event.device, pass.by_stream);
  values.collect(LaunchCapture::Purpose::kLaunch, launch, function, event.operands);
  values.submit_before(pass.context, std::bit_cast<CUstream>(event.stream));
}

void Gate::after(int result, Pass& pass) noexcept {
  if (result != CUDA_SUCCESS) note_failure(result);
  if (pass.launch == nullptr) return;
  if (expect_callbacks_.load(std::memory_order_relaxed)) compare_with_cupti(pass);
  if (result != CUDA_SUCCESS) pass.event.sampled = format::SampleOutcome::kLaunchFailed;
  try {
    if (result == CUDA_SUCCESS) succeed(pass);
  } catch (...) {  // no memory: the launch is recorded without its values
  }
  if (!state_.options.record_launches) return;
  if (state_.options.note_launch != nullptr) state_.options.note_launch();
  state_.options.sink->emit(pass.event);
  if (pass.graph != nullptr && result == CUDA_SUCCESS && !pass.into_graph)
    emit_graph_kernels(state_, *pass.graph, pass.event, pass.memory_known);
}

void Gate::succeed(Pass& pass) {
  format::Launch& event = pass.event;
  const auto stream = std::bit_cast<CUstream>(event.stream);
  if (!pass.into_graph && state_.options.compute_values)
    state_.uses.launched({event.stream, event.device}, event.operands);
  if (pass.into_graph) {
    event.sampled = format::SampleOutcome::kCaptured;
    state_.graphs.captured(stream, event.place);
  } else if (pass.launch->graph != nullptr) {
    event.sampled = sample_graph(state_, pass.graph.get(), pass.values, pass.context, event);
  } else if (pass.values) {
    event.sampled = pass.values->submit(pass.context, stream);
  }
}

void Gate::expect_callbacks(bool expected) noexcept {
  expect_callbacks_.store(expected);
  state_.functions.follow_unloads(expected);
  state_.follow_context_ends(expected);
}

void Gate::cross_check(const LaunchInfo& seen) noexcept {
  Pass* pass = pass_;
  while (pass != nullptr && pass->reported) pass = pass->next;  // they are reported in order
  if (pass == nullptr || pass->launch == nullptr) return;
  const LaunchInfo& launch = *pass->launch;
  pass->reported = true;
  pass->confirmed = seen.function == launch.function && seen.graph == launch.graph &&
                    std::equal(seen.grid, seen.grid + 3, launch.grid) &&
                    std::equal(seen.block, seen.block + 3, launch.block);
}

void Gate::compare_with_cupti(const Pass& pass) noexcept {
  if (!pass.confirmed) disagreements_.fetch_add(1, std::memory_order_relaxed);
  silent_ = pass.reported ? 0 : silent_ + 1;
  if (silent_ != kSilence) return;
  expect_callbacks(false);
  report(state_, messages::kCuptiEnded,
         "CUPTI reports nothing any more (another tool may have ended it): allocations and "
         "launches outside the gate are no longer seen");
}

void Gate::note_failure(int result) noexcept {
  if (!is_sticky(result) || !state_.gpu_work.exchange(false)) return;
  const OwnCalls own;
  state_.stats.lose_waiting();
  char text[192];
  snprintf(text, sizeof text,
           "a launch returned %s: the program's CUDA context is lost; launches are still recorded, "
           "values on the GPU are not",
           name_of(state_.driver, static_cast<CUresult>(result)));
  report(state_, messages::kContextLost, text);
}

}  // namespace convtrace::cupti
