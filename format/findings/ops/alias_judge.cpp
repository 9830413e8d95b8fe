#include "format/findings/ops/alias_judge.h"

#include <algorithm>
#include <utility>

#include "format/findings/common/wording.h"
#include "format/findings/ops/shared_memory.h"

namespace convtrace::judge {
namespace {

/// The most tensors of one op; the observer reports fewer.
constexpr size_t kMostTensors = 4096;

}  // namespace

void AliasJudge::judge(const format::Event& event, Findings& findings) {
  if (const auto* op = std::get_if<format::Op>(&event)) {
    on(*op, findings);
  } else if (const auto* free = std::get_if<format::Free>(&event)) {
    on(*free);
  } else if (const auto* loss = std::get_if<format::Loss>(&event)) {
    if (loss->reason == format::LossReason::kQueueFull) forget();
  } else if (const auto* said = std::get_if<format::Diagnostic>(&event)) {
    if (said->site == format::kCpuMemorySite) forget();
  } else if (const auto* alloc = std::get_if<format::Alloc>(&event)) {
    on(*alloc, findings);
  } else if (const auto* launch = std::get_if<format::Launch>(&event)) {
    on_activity(launch->header, nullptr, findings);
  }
}

void AliasJudge::on(const format::Op& event, Findings& findings) {
  switch (event.moment) {
    case format::OpMoment::kBegin:
      begun_[event.header.thread] = event.header.t_ns;
      return on_activity(event.header, nullptr, findings);
    case format::OpMoment::kInput:
    case format::OpMoment::kOutput: {
      std::vector<format::Op>& tensors = tensors_[event.header.thread];
      if (tensors.size() < kMostTensors) tensors.push_back(event);
      return;
    }
    case format::OpMoment::kEnd: return on_end(event, findings);
    case format::OpMoment::kStack:
      if (!event.slot) on_stack(event, findings);  // with a slot: a launch's or a tensor's stack
      return;
    case format::OpMoment::kStorageDeath: return on_storage_dead(event, findings);
    case format::OpMoment::kInFlight:
    case format::OpMoment::kAwaited: return;
  }
}

void AliasJudge::on_end(const format::Op& end, Findings& findings) {
  on_activity(end.header, nullptr, findings);
  last_op_of_thread_[end.header.thread] = ++op_serial_;
  const auto tensors = tensors_.extract(end.header.thread);
  if (tensors.empty()) return;
  const auto finding_of = [&end](const format::Op& output, Overlap memory) {
    OpFinding finding;
    finding.header = end.header;
    finding.place = end.place;
    finding.op = end.op;
    finding.slot = output.slot;
    finding.address = memory.address;
    finding.bytes = memory.bytes;
    finding.value = output.value;
    return finding;
  };
  each_shared(end, tensors.mapped(),
              [&](const format::Op& output, const format::Op& input, Overlap common) {
                OpFinding finding = finding_of(output, common);
                finding.other = input.slot;
                if (output.value.storage != input.value.storage)
                  watch_owners(input, output, finding);
                if (!end.declares_alias) unannounced_.push_back(finding);
              });
  for (const format::Op& output : tensors.mapped()) {
    if (is_unowned(output, tensors.mapped()) && !has_owner(output.value.storage))
      watch_unowned(output, finding_of(output, {output.address, output.bytes}));
  }
}

/// If the input itself overlaps memory of another owner, that owner's death is the one that
/// matters.
void AliasJudge::watch_owners(const format::Op& input, const format::Op& output,
                              const OpFinding& finding) {
  if (is_unowned_output(input.value.storage)) return;  // so this output has no known owner either
  std::vector<Watch> inherited;
  for (const Watch& watch : watches_) {
    if (watch.output != input.value.storage || watch.owner == output.value.storage) continue;
    if (overlap(watch.base, watch.bytes, storage_base(output), output.storage_bytes).bytes == 0)
      continue;
    inherited.push_back(watch);
  }
  for (Watch& watch : inherited) {
    watch.output = output.value.storage;
    const format::StackId alloc_stack = watch.finding.alloc_stack;
    watch.finding = finding;
    watch.finding.alloc_stack = alloc_stack;
    add_watch(watch);
  }
  if (!inherited.empty()) return;
  OpFinding owned = finding;
  owned.alloc_stack = input.stack;
  add_watch(Watch{.owner = input.value.storage,
                  .output = output.value.storage,
                  .base = storage_base(input),
                  .bytes = input.storage_bytes,
                  .generation = input.value.generation,
                  .frees_reported = input.frees_reported,
                  .finding = owned});
}

void AliasJudge::add_watch(Watch watch) {
  watch.finding.kind = format::FindingKind::kFreedUnderOutput;
  watch.op_serial = op_serial_;
  for (Watch& known : watches_) {
    if (known.owner == watch.owner && known.output == watch.output) {
      known = std::move(watch);
      return;
    }
  }
  if (watches_.size() >= kMaxWatches) {
    ++refused_;
    return;
  }
  watches_.push_back(std::move(watch));
}

/// @return whether the owner of the memory of the storage `output` is known.
bool AliasJudge::has_owner(uint64_t output) const {
  return std::ranges::any_of(watches_, [output](const Watch& watch) {
    return watch.output == output && watch.generation != 0;
  });
}

bool AliasJudge::is_unowned_output(uint64_t storage) const {
  return std::ranges::any_of(unowned_, [storage](const Watch& w) { return w.output == storage; });
}

void AliasJudge::watch_unowned(const format::Op& output, OpFinding finding) {
  const uint64_t storage = output.value.storage;
  forget_unowned([storage](const Watch& known) { return known.output == storage; });
  if (unowned_.size() == kMostUnowned) {
    const uint64_t oldest = unowned_.front().output;
    forget_unowned([oldest](const Watch& known) { return known.output == oldest; });
  }
  finding.kind = format::FindingKind::kFreedUnderOutput;
  const Ended* const ended = ended_.find(output.address - output.value.offset);
  const auto begun = begun_.find(finding.header.thread);
  // Memory that was freed before the op may belong to another library since.
  if (ended != nullptr && begun != begun_.end() && ended->t_ns >= begun->second) {
    finding.alloc_stack = ended->alloc;
    finding.free_stack = ended->free;
  }
  unowned_.push_back({.output = storage,
                      .generation = output.value.generation,
                      .op_serial = op_serial_,
                      .finding = finding});
  grounds_.push_back({finding.address, finding.bytes, output.value.generation});
}

template <typename Which>
void AliasJudge::forget_unowned(Which&& which) {
  if (std::erase_if(unowned_, which) == 0) return;
  grounds_.clear();
  for (const Watch& left : unowned_)
    grounds_.push_back({left.finding.address, left.finding.bytes, left.generation});
}

void AliasJudge::on_stack(const format::Op& event, Findings& findings) {
  const uint32_t thread = event.header.thread;
  for (OpFinding& finding : unannounced_) {
    if (finding.header.thread == thread) finding.launch_stack = event.stack;
  }
  const auto last = last_op_of_thread_.find(thread);
  if (last == last_op_of_thread_.end()) return;
  for (std::vector<Watch>* watches : {&watches_, &unowned_}) {
    for (Watch& watch : *watches) {
      if (watch.op_serial == last->second) watch.finding.launch_stack = event.stack;
    }
  }
  announce(event.header, findings);
}

void AliasJudge::on_storage_dead(const format::Op& event, Findings& findings) {
  const uint64_t storage = event.value.storage;
  announce(event.header, findings);
  std::erase_if(pending_, [storage](const Pending& p) { return p.watch.output == storage; });
  const auto over_it = [storage](const Watch& w) { return w.output == storage; };
  std::erase_if(watches_, over_it);
  forget_unowned(over_it);
  for (Watch& watch : watches_) {
    if (watch.owner != storage) continue;
    watch.finding.free_stack = event.stack;
    // If frees are reported, memory that was never reported belongs to another owner (a NumPy
    // array, another library), and the storage's death does not free it.
    if (watch.frees_reported && watch.generation == 0) continue;
    pending_.push_back({watch, event.header.thread, !watch.frees_reported || watch.freed});
  }
  std::erase_if(watches_, [storage](const Watch& w) { return w.owner == storage; });
}

void AliasJudge::on(const format::Alloc& event, Findings& findings) {
  on_activity(event.header, &event, findings);
  if (event.stack) ended_.get(event.address).first = {0, event.stack, {}};
  if (event.source != format::MemorySource::kFramework) return;
  const auto given_out = [&event](const auto& ground) {
    return overlap(ground.address, ground.bytes, event.address, event.bytes).bytes != 0;
  };
  if (std::ranges::none_of(grounds_, given_out)) return;
  forget_unowned([&](const Watch& watch) {
    if (!given_out(watch.finding)) return false;
    OpFinding finding = watch.finding;
    finding.given_to = event.bytes;
    report(std::move(finding), event.header, findings);
    return true;
  });
}

void AliasJudge::on(const format::Free& event) {
  if (event.source != format::MemorySource::kFramework) return;
  if (event.stack) {
    Ended& ended = ended_.get(event.address).first;
    ended.t_ns = event.header.t_ns;
    ended.free = event.stack;
  }
  free_under_outputs(event);
  for (Watch& watch : watches_) {
    if (watch.generation == event.generation) watch.freed = true;
  }
  for (Pending& pending : pending_) {
    if (pending.watch.generation != event.generation) continue;
    pending.freed = true;
    pending.thread = event.header.thread;
  }
}

/// For outputs whose owner was not among the inputs.
void AliasJudge::free_under_outputs(const format::Free& event) {
  const auto freed = [&event](const auto& one) {
    return one.generation != 0 && one.generation == event.generation;
  };
  if (std::ranges::none_of(grounds_, freed)) return;
  const Ended* const ended = ended_.find(event.address);
  for (Watch watch : unowned_) {
    if (!freed(watch)) continue;
    if (ended != nullptr) watch.finding.alloc_stack = ended->alloc;
    watch.finding.free_stack = event.stack;
    pending_.push_back({watch, event.header.thread, true});
  }
  forget_unowned(freed);
}

/// The lost event may have been the death of a storage, or a free.
void AliasJudge::forget() {
  tensors_.clear();
  watches_.clear();
  unowned_.clear();
  grounds_.clear();
  pending_.clear();
}

/// A thread allocates, launches or calls something, so memory that it freed may be overwritten now.
/// @param alloc  its allocation, if it was one.
void AliasJudge::on_activity(const format::EventHeader& now, const format::Alloc* alloc,
                             Findings& findings) {
  if (pending_.empty() && unannounced_.empty()) return;
  announce(now, findings);
  confirm(now, alloc, findings);
}

void AliasJudge::confirm(const format::EventHeader& now, const format::Alloc* alloc,
                         Findings& findings) {
  const auto confirmed = [&now](const Pending& p) { return p.freed && p.thread == now.thread; };
  for (const Pending& pending : pending_) {
    if (!confirmed(pending)) continue;
    OpFinding finding = pending.watch.finding;
    if (alloc != nullptr &&
        overlap(finding.address, finding.bytes, alloc->address, alloc->bytes).bytes != 0) {
      finding.given_to = alloc->bytes;
    }
    report(std::move(finding), now, findings);
  }
  std::erase_if(pending_, confirmed);
}

void AliasJudge::announce(const format::EventHeader& now, Findings& findings) {
  const auto ours = [&now](const OpFinding& f) { return f.header.thread == now.thread; };
  for (const OpFinding& finding : unannounced_) {
    if (ours(finding)) report(finding, now, findings);
  }
  std::erase_if(unannounced_, ours);
}

void AliasJudge::report(OpFinding finding, const format::EventHeader& now, Findings& findings) {
  finding.header.t_ns = now.t_ns;
  const Key key{finding.kind, finding.op, finding.place.scope, finding.slot, finding.other};
  finding.occurrence = ++occurrences_[key];
  if (worth_saying(finding.occurrence)) findings.push_back(std::move(finding));
}

}  // namespace convtrace::judge
