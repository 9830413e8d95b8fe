#include "format/judge/alias_judge.h"

#include <algorithm>
#include <utility>

#include "format/judge/occurrence.h"
#include "format/judge/shared_memory.h"

namespace convtrace::judge {
namespace {

/// Of one op; the observer tells of fewer.
constexpr size_t kMostTensors = 4096;

}  // namespace

void AliasJudge::see(const format::Event& event, Findings& findings) {
  if (const auto* op = std::get_if<format::Op>(&event)) {
    on(*op, findings);
  } else if (const auto* free = std::get_if<format::Free>(&event)) {
    on(*free);
  } else if (const auto* loss = std::get_if<format::Loss>(&event)) {
    on(*loss);
  } else if (std::holds_alternative<format::Launch>(event) ||
             std::holds_alternative<format::Alloc>(event)) {
    on_activity(format::header_of(event), findings);
  }
}

void AliasJudge::on(const format::Op& event, Findings& findings) {
  switch (event.moment) {
    case format::OpMoment::kBegin:
      return on_activity(event.header, findings);
    case format::OpMoment::kInput:
    case format::OpMoment::kOutput: {
      std::vector<format::Op>& tensors = tensors_[event.header.thread];
      if (tensors.size() < kMostTensors) tensors.push_back(event);
      return;
    }
    case format::OpMoment::kEnd:
      return on_end(event, findings);
    case format::OpMoment::kStack:
      if (!event.slot) on_stack(event, findings);  // of an op, not of a launch or a tensor
      return;
    case format::OpMoment::kStorageDeath:
      return on_storage_dead(event, findings);
  }
}

void AliasJudge::on_end(const format::Op& end, Findings& findings) {
  on_activity(end.header, findings);
  last_op_of_thread_[end.header.thread] = ++op_serial_;
  const auto tensors = tensors_.extract(end.header.thread);
  if (tensors.empty()) return;
  each_shared(end, tensors.mapped(),
              [&](const format::Op& output, const format::Op& input, Overlap common) {
                OpFinding finding{.header = end.header,
                                  .place = end.place,
                                  .op = end.op,
                                  .slot = output.slot,
                                  .other = input.slot,
                                  .address = common.address,
                                  .bytes = common.bytes,
                                  .value = output.value};
                if (output.value.storage != input.value.storage)
                  watch_owners(input, output, finding);
                if (!end.declares_alias) unannounced_.push_back(finding);
              });
}

/// The input may itself lie over memory of somebody else: then that owner is the one whose death
/// counts.
void AliasJudge::watch_owners(const format::Op& input, const format::Op& output,
                              const OpFinding& finding) {
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

void AliasJudge::on_stack(const format::Op& event, Findings& findings) {
  const uint32_t thread = event.header.thread;
  for (OpFinding& finding : unannounced_) {
    if (finding.header.thread == thread) finding.launch_stack = event.stack;
  }
  const auto last = last_op_of_thread_.find(thread);
  if (last == last_op_of_thread_.end()) return;
  for (Watch& watch : watches_) {
    if (watch.op_serial == last->second) watch.finding.launch_stack = event.stack;
  }
  announce(event.header, findings);
}

void AliasJudge::on_storage_dead(const format::Op& event, Findings& findings) {
  const uint64_t storage = event.value.storage;
  announce(event.header, findings);
  std::erase_if(pending_, [storage](const Pending& p) { return p.watch.output == storage; });
  std::erase_if(watches_, [storage](const Watch& w) { return w.output == storage; });
  for (Watch& watch : watches_) {
    if (watch.owner != storage) continue;
    watch.finding.free_stack = event.stack;
    // Where frees are reported, memory that was never reported belongs to somebody else (a NumPy
    // array, another library): the storage's death does not free it.
    if (watch.frees_reported && watch.generation == 0) continue;
    pending_.push_back({watch, event.header.thread, !watch.frees_reported || watch.freed});
  }
  std::erase_if(watches_, [storage](const Watch& w) { return w.owner == storage; });
}

void AliasJudge::on(const format::Free& event) {
  if (event.source != format::MemorySource::kFramework) return;
  for (Watch& watch : watches_) {
    if (watch.generation == event.generation) watch.freed = true;
  }
  for (Pending& pending : pending_) {
    if (pending.watch.generation != event.generation) continue;
    pending.freed = true;
    pending.thread = event.header.thread;
  }
}

/// It may have been a storage's death, or a free.
void AliasJudge::on(const format::Loss& event) {
  if (event.reason != format::LossReason::kQueueFull) return;
  tensors_.clear();
  watches_.clear();
  pending_.clear();
}

/// A thread allocated, launched or called something: what it freed may be overwritten from now on.
void AliasJudge::on_activity(const format::EventHeader& now, Findings& findings) {
  if (pending_.empty() && unannounced_.empty()) return;
  announce(now, findings);
  confirm(now, findings);
}

void AliasJudge::confirm(const format::EventHeader& now, Findings& findings) {
  const auto confirmed = [&now](const Pending& p) { return p.freed && p.thread == now.thread; };
  for (const Pending& pending : pending_) {
    if (confirmed(pending)) report(pending.watch.finding, now, findings);
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
