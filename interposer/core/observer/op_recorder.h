#pragma once
/// @file op_recorder.h
/// Turns the messages of a tagged op into Op events and adds the facts about memory that only the
/// engine has.
///
/// Place:    used by observer_port.h.
/// Threads:  any.

#include <span>

#include "cupti/memory/address_map.h"
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

  /// An op has returned. Adds the missing facts to the tensors first.
  /// @param tensors  events of its inputs and outputs.
  /// @return whether the op's stack and the deaths of its storages are wanted.
  bool record(const format::Op& end, std::span<format::Op> tensors);

  /// The calling thread launches a kernel. @param slot  "launch"
  void note_launch(format::StringId slot, uint32_t step);

 private:
  void complete(format::Op& tensor) const;
  [[nodiscard]] uint64_t block_at(uint64_t base, format::Device::Type type) const;

  format::EventSink& sink_;
  const cupti::AddressMap& addresses_;
  MemoryJournal& journal_;
  StackTexts& stacks_;
};

}  // namespace convtrace::engine
