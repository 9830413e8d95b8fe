#pragma once
/// @file alias_watch.h
/// The alias detector in its surroundings: resolves stacks and memory, and turns what it finds into
/// Finding events.
///
/// Place:    observer_port.h and engine.h call it.
/// Threads:  any.

#include <span>
#include <vector>

#include "cupti/address_map.h"
#include "format/definitions.h"
#include "format/event_sink.h"
#include "format/settings/rule_book.h"
#include "interposer/engine/alias_detector.h"
#include "interposer/engine/memory_journal.h"
#include "interposer/engine/stack_texts.h"

namespace convtrace::engine {

class AliasWatch {
 public:
  /// All of it outlives the watch.
  struct Surroundings {
    format::EventSink& sink;
    format::Definitions& definitions;
    const cupti::AddressMap& addresses;
    StackTexts& stacks;
    settings::RuleBook& rules;
  };
  explicit AliasWatch(const Surroundings& around) : around_(around) {}

  /// An op returned. Fills in the operands' generations first.
  /// @return whether its stack and the deaths of its storages are wanted.
  bool on_op(const OpCall& call, std::span<OpOperand> operands, const MemoryJournal& journal);
  void on_op_stack(uint32_t thread, format::StackId stack);
  void on_storage_dead(uint64_t storage, uint32_t thread, format::StackId free_stack,
                       const MemoryJournal& journal);

  /// Whether activity matters now.
  [[nodiscard]] bool attentive() const noexcept { return detector_.attentive(); }
  /// Hot: cheap unless attentive().
  void on_activity(uint32_t thread) {
    if (!detector_.attentive()) return;
    AliasDetector::Findings findings;
    detector_.on_activity(thread, findings);
    emit(findings);
  }
  void on_freed(uint64_t generation, uint32_t thread) {
    if (detector_.attentive()) detector_.on_freed(generation, thread);
  }
  /// The process ends.
  void finish();

 private:
  void emit(const AliasDetector::Findings& findings);
  [[nodiscard]] bool suppressed(const AliasFinding& finding) const;
  [[nodiscard]] uint64_t block_at(uint64_t base) const;

  Surroundings around_;
  AliasDetector detector_;
};

}  // namespace convtrace::engine
