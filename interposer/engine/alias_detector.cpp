#include "interposer/engine/alias_detector.h"

#include <algorithm>
#include <bit>

namespace convtrace::engine {
namespace {

struct Overlap {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

Overlap overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  const uint64_t first = std::max(a, b);
  const uint64_t end = std::min(a + a_bytes, b + b_bytes);
  return end > first ? Overlap{first, end - first} : Overlap{};
}

Overlap data_overlap(const OpOperand& a, const OpOperand& b) {
  return overlap(a.data, a.bytes, b.data, b.bytes);
}

Overlap storage_overlap(const OpOperand& a, const OpOperand& b) {
  return overlap(a.storage_base, a.storage_bytes, b.storage_base, b.storage_bytes);
}

/// A bug in a loop is said four times, then at each doubling: enough to see it, never a flood.
bool worth_saying(uint64_t occurrence) {
  return occurrence <= 4 || std::has_single_bit(occurrence);
}

}  // namespace

bool AliasDetector::on_op(const OpCall& call, Findings& findings) {
  const std::lock_guard lock(mutex_);
  announce(call.thread, findings);
  confirm(call.thread, findings);
  last_op_of_thread_[call.thread] = ++op_serial_;
  bool interesting = false;
  for (const OpOperand& output : call.operands) {
    if (!output.is_output) continue;
    for (const OpOperand& input : call.operands) {
      if (!input.is_output && judge_pair(call, output, input)) interesting = true;
    }
  }
  note_attention();
  return interesting;
}

/// @return whether the pair aliases in a way that the op has not declared harmless.
bool AliasDetector::judge_pair(const OpCall& call, const OpOperand& output,
                               const OpOperand& input) {
  const bool same_storage = output.storage == input.storage;
  Overlap common = data_overlap(output, input);
  if (!same_storage && common.bytes == 0) common = storage_overlap(output, input);
  if (common.bytes == 0) return false;
  // Within one storage aliasing is ordinary (views, in-place ops): only a schema that denies it
  // makes it wrong.
  if (same_storage && (!call.schema_known || call.declared_alias)) return false;

  AliasFinding finding{.place = call.place,
                       .step = call.step,
                       .thread = call.thread,
                       .op = call.op,
                       .output = output.slot,
                       .input = input.slot,
                       .address = common.address,
                       .bytes = common.bytes};
  finding.value = {.storage = output.storage,
                   .offset = output.data - output.storage_base,
                   .generation = output.generation,
                   .version = output.version};
  if (!same_storage) watch_owners(input, output, finding);
  if (!call.declared_alias) unannounced_.push_back(finding);
  return true;
}

/// The input may itself lie over memory of somebody else: then that owner is the one whose death
/// counts.
void AliasDetector::watch_owners(const OpOperand& input, const OpOperand& output,
                                 const AliasFinding& finding) {
  std::vector<Watch> inherited;
  for (const Watch& watch : watches_) {
    if (watch.output != input.storage || watch.owner == output.storage) continue;
    if (overlap(watch.memory.base, watch.owner_bytes, output.storage_base, output.storage_bytes)
            .bytes == 0) {
      continue;
    }
    inherited.push_back(watch);
  }
  for (Watch& watch : inherited) {
    watch.output = output.storage;
    watch.finding = finding;
    add_watch(watch);
  }
  if (!inherited.empty()) return;
  add_watch(Watch{.owner = input.storage,
                  .output = output.storage,
                  .memory = {input.storage_base, input.generation},
                  .owner_bytes = input.storage_bytes,
                  .frees_reported = input.frees_reported,
                  .finding = finding});
}

void AliasDetector::add_watch(Watch watch) {
  watch.finding.kind = format::FindingKind::kFreedUnderOutput;
  watch.op_serial = op_serial_;
  for (Watch& known : watches_) {
    if (known.owner == watch.owner && known.output == watch.output) {
      known = watch;
      return;
    }
  }
  if (watches_.size() >= kMaxWatches) {
    ++refused_;
    return;
  }
  watches_.push_back(watch);
}

void AliasDetector::on_op_stack(uint32_t thread, format::StackId stack, Findings& findings) {
  const std::lock_guard lock(mutex_);
  for (AliasFinding& finding : unannounced_) {
    if (finding.thread == thread) finding.launch_stack = stack;
  }
  const auto last = last_op_of_thread_.find(thread);
  if (last == last_op_of_thread_.end()) return;
  for (Watch& watch : watches_) {
    if (watch.op_serial == last->second) watch.finding.launch_stack = stack;
  }
  announce(thread, findings);
}

bool AliasDetector::owns_watched(uint64_t storage, WatchedMemory& memory) const {
  const std::lock_guard lock(mutex_);
  for (const Watch& watch : watches_) {
    if (watch.owner != storage) continue;
    memory = watch.memory;
    return true;
  }
  return false;
}

void AliasDetector::on_storage_dead(uint64_t storage, uint32_t thread, bool already_freed,
                                    format::StackId free_stack, format::StackId alloc_stack,
                                    Findings& findings) {
  const std::lock_guard lock(mutex_);
  announce(thread, findings);
  std::erase_if(pending_, [storage](const Pending& p) { return p.watch.output == storage; });
  std::erase_if(watches_, [storage](const Watch& w) { return w.output == storage; });
  for (Watch& watch : watches_) {
    if (watch.owner != storage) continue;
    watch.finding.free_stack = free_stack;
    watch.finding.alloc_stack = alloc_stack;
    // Where frees are reported, memory that was never reported belongs to somebody else (a NumPy
    // array, another library): the storage's death does not free it.
    if (watch.frees_reported && watch.memory.generation == 0) continue;
    pending_.push_back({watch, thread, !watch.frees_reported || already_freed});
  }
  std::erase_if(watches_, [storage](const Watch& w) { return w.owner == storage; });
  note_attention();
}

void AliasDetector::on_freed(uint64_t generation, uint32_t thread) {
  const std::lock_guard lock(mutex_);
  for (Pending& pending : pending_) {
    if (pending.watch.memory.generation != generation) continue;
    pending.freed = true;
    pending.thread = thread;
  }
}

void AliasDetector::on_activity(uint32_t thread, Findings& findings) {
  const std::lock_guard lock(mutex_);
  announce(thread, findings);
  confirm(thread, findings);
  note_attention();
}

void AliasDetector::finish(Findings& findings) {
  const std::lock_guard lock(mutex_);
  for (AliasFinding& finding : unannounced_) report(finding, findings);
  unannounced_.clear();
  pending_.clear();
  watches_.clear();
  note_attention();
}

uint64_t AliasDetector::watches_refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

void AliasDetector::confirm(uint32_t thread, Findings& findings) {
  const auto confirmed = [thread](const Pending& p) { return p.freed && p.thread == thread; };
  for (const Pending& pending : pending_) {
    if (confirmed(pending)) report(pending.watch.finding, findings);
  }
  std::erase_if(pending_, confirmed);
}

void AliasDetector::announce(uint32_t thread, Findings& findings) {
  const auto ours = [thread](const AliasFinding& f) { return f.thread == thread; };
  for (const AliasFinding& finding : unannounced_) {
    if (ours(finding)) report(finding, findings);
  }
  std::erase_if(unannounced_, ours);
}

void AliasDetector::report(AliasFinding finding, Findings& findings) {
  const Key key{finding.kind, finding.op, finding.place.scope, finding.output, finding.input};
  finding.occurrence = ++occurrences_[key];
  if (worth_saying(finding.occurrence)) findings.push_back(finding);
}

void AliasDetector::note_attention() noexcept {
  attentive_.store(!pending_.empty() || !unannounced_.empty(), std::memory_order_relaxed);
}

}  // namespace convtrace::engine
