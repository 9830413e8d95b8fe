#include "interposer/engine/alias_watch.h"

#include <algorithm>

#include "interposer/engine/alias_text.h"

namespace convtrace::engine {

bool AliasWatch::on_op(const OpCall& call, std::span<OpOperand> operands,
                       const MemoryJournal& journal) {
  for (OpOperand& operand : operands) {
    operand.generation = block_at(operand.storage_base);
    operand.frees_reported = journal.reported(operand.device.type);
  }
  OpCall judged = call;
  judged.operands = operands;
  AliasDetector::Findings findings;
  const bool interesting = detector_.on_op(judged, findings);
  emit(findings);
  return interesting;
}

void AliasWatch::on_op_stack(uint32_t thread, format::StackId stack) {
  AliasDetector::Findings findings;
  detector_.on_op_stack(thread, stack, findings);
  emit(findings);
}

void AliasWatch::on_storage_dead(uint64_t storage, uint32_t thread, format::StackId free_stack,
                                 const MemoryJournal& journal) {
  WatchedMemory memory;
  bool already_freed = false;
  format::StackId alloc_stack;
  if (detector_.owns_watched(storage, memory)) {
    already_freed = memory.generation != 0 && block_at(memory.base) != memory.generation;
    alloc_stack = around_.stacks.intern(journal.allocation_stack(memory.generation));
  }
  AliasDetector::Findings findings;
  detector_.on_storage_dead(storage, thread, already_freed, free_stack, alloc_stack, findings);
  emit(findings);
}

void AliasWatch::finish() {
  AliasDetector::Findings findings;
  detector_.finish(findings);
  emit(findings);
}

/// @return the framework's live block that begins at `base`; 0 if it is not the framework's.
uint64_t AliasWatch::block_at(uint64_t base) const {
  const auto range = around_.addresses.find(base);
  const bool ours = range && !range->freed && range->base == base &&
                    range->source == format::MemorySource::kFramework;
  return ours ? range->generation : 0;
}

bool AliasWatch::suppressed(const AliasFinding& finding) const {
  const format::StringId scope = finding.place.scope;
  for (const settings::Rule* rule :
       around_.rules.of_scope(scope.value, around_.definitions.text(scope))) {
    if (!rule->suppress && !rule->inplace) continue;
    around_.rules.used(*rule);
    return true;
  }
  return false;
}

void AliasWatch::emit(const AliasDetector::Findings& findings) {
  for (const AliasFinding& found : findings) {
    const std::string message = describe(found, around_.definitions);
    format::Finding event;
    event.header.step = found.step;
    event.place = found.place;
    event.kind = found.kind;
    event.level = found.kind == format::FindingKind::kFreedUnderOutput ? format::Level::kError
                                                                       : format::Level::kWarning;
    event.suppressed = suppressed(found);
    event.op = found.op;
    event.slot = found.output;
    event.other = found.input;
    event.address = found.address;
    event.bytes = found.bytes;
    event.value = found.value;
    event.alloc_stack = found.alloc_stack;
    event.launch_stack = found.launch_stack;
    event.free_stack = found.free_stack;
    event.message = message;
    around_.sink.emit(event);
  }
}

}  // namespace convtrace::engine
