#pragma once
/// @file alias_program.h
/// Ops, and the events that the observer and the allocator make of them, before the judge of shared
/// memory.

#include <vector>

#include "format/findings/ops/alias_judge.h"
#include "format/findings/ops/shared_memory.h"

namespace convtrace::test {

using format::FindingKind;
using format::StackId;
using format::StringId;
using judge::AliasJudge;
using judge::OpFinding;

inline constexpr uint32_t kThread = 11;
inline constexpr uint64_t kBytes = 98304;
inline constexpr StringId kInput0{1}, kInput1{2}, kOutput0{3}, kOutput1{4};

/// A tensor that covers its whole storage; its block's generation is the storage's number.
inline format::Op tensor(StringId slot, uint64_t storage, uint64_t base, uint64_t bytes = kBytes) {
  const bool is_output = slot == kOutput0 || slot == kOutput1;
  format::Op tensor;
  tensor.moment = is_output ? format::OpMoment::kOutput : format::OpMoment::kInput;
  tensor.slot = slot;
  tensor.address = base;
  tensor.bytes = tensor.storage_bytes = bytes;
  tensor.value = {.storage = storage, .offset = 0, .generation = storage, .version = 0};
  tensor.frees_reported = true;
  if (!is_output) tensor.stack = StackId{8};
  return tensor;
}

/// A judge and the events that the observer and the allocator make.
struct Program {
  AliasJudge judge;
  AliasJudge::Findings findings;
  bool schema_known = false;
  bool declared = false;

  void see(format::Event event, uint32_t thread = kThread) {
    format::header_of(event).thread = thread;
    format::header_of(event).step = 3;
    judge.see(event, findings);
  }
  /// @return whether it is worth a stack.
  bool op(const std::vector<format::Op>& tensors, uint32_t thread = kThread) {
    format::Op event;
    event.op = StringId{9};
    see(event, thread);
    for (const format::Op& tensor : tensors) see(tensor, thread);
    event.moment = format::OpMoment::kEnd;
    event.has_schema = schema_known;
    event.declares_alias = declared;
    see(event, thread);
    bool shares = false;
    judge::each_shared(event, tensors,
                       [&shares](const auto&, const auto&, judge::Overlap) { shares = true; });
    for (const format::Op& tensor : tensors) shares = shares || judge::is_unowned(tensor, tensors);
    return shares;
  }
  void stack(uint32_t id) {
    format::Op event;
    event.moment = format::OpMoment::kStack;
    event.stack = StackId{id};
    see(event);
  }
  /// The weak reference's callback comes first, then the allocator's report.
  void dies(uint64_t storage, uint32_t thread = kThread) {
    format::Op event;
    event.moment = format::OpMoment::kStorageDeath;
    event.value.storage = storage;
    event.stack = StackId{7};
    see(event, thread);
  }
  void freed(uint64_t generation) {
    format::Free event;
    event.generation = generation;
    event.source = format::MemorySource::kFramework;
    see(event);
  }
  void dies_and_frees(uint64_t storage) {
    dies(storage);
    freed(storage);
  }
  void allocates(uint32_t thread = kThread) { see(format::Alloc{}, thread); }
  void gives_out(uint64_t address, uint64_t bytes = kBytes,
                 format::MemorySource source = format::MemorySource::kFramework) {
    format::Alloc event;
    event.address = address;
    event.bytes = bytes;
    event.source = source;
    see(event);
  }
  [[nodiscard]] size_t count(FindingKind kind) const {
    size_t n = 0;
    for (const OpFinding& finding : findings) n += finding.kind == kind ? 1 : 0;
    return n;
  }
  [[nodiscard]] size_t errors() const { return count(FindingKind::kFreedUnderOutput); }
  [[nodiscard]] size_t warnings() const { return count(FindingKind::kOutputAliasesInput); }
};

}  // namespace convtrace::test
