#pragma once
/// @file op_finding.h
/// What a finding about a tagged op says, without its sentence (op_text.h).

#include <cstdint>

#include "format/findings/ops/last_owners.h"
#include "format/model/events.h"

namespace convtrace::judge {

struct OpFinding {
  format::FindingKind kind = format::FindingKind::kOutputAliasesInput;
  format::EventHeader header;  ///< of the event that showed it, but for the step, which is the op's
  format::Place place;
  format::StringId op;
  format::StringId slot{};   ///< the output; of mutations the input
  format::StringId other{};  ///< the input that the output aliases
  uint64_t address = 0;      ///< first byte in question
  uint64_t bytes = 0;        ///< bytes in question: those in common
  format::ValueId value{};
  format::StackId alloc_stack{}, launch_stack{}, free_stack{};
  format::KernelId kernel{};  ///< autotune-mutation: what was launched `count` times
  uint64_t count = 0;         ///< never-written: elements
  uint64_t of = 0;            ///< of so many that were looked at
  bool all = true;            ///< that is all of them
  Owner before{};             ///< never-written: whose memory it was
  uint64_t hash_before = 0;   ///< input-mutated
  uint64_t hash_after = 0;
  uint64_t given_to = 0;    ///< freed-under-output: bytes of the allocation that has the memory now
  uint64_t occurrence = 1;  ///< how often this op did this in this scope, this time included
};

}  // namespace convtrace::judge
