#pragma once
/// @file op_recorder.h
/// Turns the messages of a tagged op into Op events and adds the facts about memory that only the
/// engine has.
///
/// Stacks:   a finding about memory that an op's output shares with an input tells where that memory
///           was allocated. An op shares memory at a place in each of its calls or in none, so from
///           the first step with ops on allocations carry stacks only until two steps have passed in
///           which no op was called at a new place and none shared memory.
///
/// Place:    used by observer_port.h.
/// Threads:  any.

#include <atomic>
#include <span>
#include <unordered_set>

#include "cupti/memory/address_map.h"
#include "format/base/mutex.h"
#include "format/model/event_sink.h"
#include "interposer/core/memory/memory_journal.h"
#include "interposer/core/memory/stack_texts.h"

namespace convtrace::engine {

class OpRecorder {
 public:
  /// All references outlive the recorder.
  OpRecorder(format::EventSink& sink, const cupti::AddressMap& addresses, MemoryJournal& journal,
             StackTexts& stacks)
      : sink_(sink), addresses_(addresses), journal_(journal), stacks_(stacks) {}

  /// Ops are about to be called: allocations carry stacks.
  void expect() noexcept;
  /// A step has begun.
  void begin_step(uint32_t step) noexcept;
  /// An op has returned. Adds the missing facts to the tensors first.
  /// @param tensors  events of its inputs and outputs.
  /// @return whether the op's stack and the deaths of its storages are wanted.
  bool record(const format::Op& end, std::span<format::Op> tensors);

  /// The calling thread launches a kernel. @param slot  "launch"
  void note_launch(format::StringId slot, uint32_t step);

 private:
  static constexpr uint32_t kStepsWithStacks = 2;
  static constexpr uint32_t kAllSteps = ~uint32_t{0};

  /// @return whether the op was not called there before, since ops are expected.
  bool is_new(const format::Op& end);
  void complete(format::Op& tensor) const;
  [[nodiscard]] uint64_t block_at(uint64_t base, format::Device::Type type) const;

  format::EventSink& sink_;
  const cupti::AddressMap& addresses_;
  MemoryJournal& journal_;
  StackTexts& stacks_;
  std::atomic<bool> expected_{false};
  std::atomic<uint32_t> last_with_stacks_{kAllSteps};
  Mutex mutex_;
  std::unordered_set<uint64_t> known_ CONVTRACE_GUARDED_BY(mutex_);  ///< op | scope << 32
};

}  // namespace convtrace::engine
