#include "interposer/core/observer/op_recorder.h"

#include <algorithm>

#include "format/findings/ops/shared_memory.h"
#include "interposer/core/memory/unwinder.h"

namespace convtrace::engine {

void OpRecorder::expect() noexcept {
  if (!expected_.exchange(true)) journal_.take_stacks(true);
}

void OpRecorder::begin_step(uint32_t step) noexcept {
  if (step > last_with_stacks_.load(std::memory_order_relaxed)) journal_.take_stacks(false);
}

bool OpRecorder::is_new(const format::Op& end) {
  const Lock lock(mutex_);
  return known_.insert(end.op.value | uint64_t{end.place.scope.value} << 32).second;
}

bool OpRecorder::record(const format::Op& end, std::span<format::Op> tensors) {
  for (format::Op& tensor : tensors) complete(tensor);
  bool shares = false;
  judge::each_shared(end, tensors,
                     [&shares](const auto&, const auto&, judge::Overlap) { shares = true; });
  const bool unowned = std::ranges::any_of(
      tensors, [tensors](const format::Op& one) { return judge::is_unowned(one, tensors); });
  if (expected_.load(std::memory_order_relaxed) && (is_new(end) || shares)) {
    last_with_stacks_.store(end.header.step + kStepsWithStacks, std::memory_order_relaxed);
    journal_.take_stacks(true);
  }
  for (format::Op& tensor : tensors) {
    if (shares && tensor.moment == format::OpMoment::kInput)
      tensor.stack = stacks_.intern(journal_.allocation_stack(tensor.value.generation));
    sink_.emit(tensor);
  }
  sink_.emit(end);
  return shares || unowned;
}

void OpRecorder::note_launch(format::StringId slot, uint32_t step) {
  RawStack stack;
  capture_stack(stack);
  format::Op event;
  event.header.step = step;
  event.moment = format::OpMoment::kStack;
  event.slot = slot;
  event.device.type = format::Device::Type::kCuda;
  event.stack = stacks_.intern(stack.span());
  sink_.emit(event);
}

void OpRecorder::complete(format::Op& tensor) const {
  tensor.value.generation = block_at(judge::storage_base(tensor), tensor.device.type);
  tensor.frees_reported = journal_.reported(tensor.device.type);
}

/// @return the generation of the framework's live block that begins at `base`; 0 if there is none.
uint64_t OpRecorder::block_at(uint64_t base, format::Device::Type type) const {
  if (type == format::Device::Type::kCpu) {
    const CpuBlock block = journal_.cpu_block(base);
    return block.base == base ? block.generation : 0;
  }
  const auto range = addresses_.find(base);
  const bool ours = range && !range->freed && range->base == base &&
                    range->source == format::MemorySource::kFramework;
  return ours ? range->generation : 0;
}

}  // namespace convtrace::engine
