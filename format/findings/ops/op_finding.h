#pragma once
/// @file op_finding.h
/// A finding about a tagged op, and its text (op_text.cpp): what happened, what it means, what to do.

#include <cstdint>
#include <string>

#include "format/findings/ops/last_owners.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

struct OpFinding {
  format::FindingKind kind = format::FindingKind::kOutputAliasesInput;
  format::EventHeader header;  ///< the header of the event that caused the finding; step: the op's
  format::Place place;
  format::StringId op;
  format::StringId slot{};   ///< the output; for mutations the input
  format::StringId other{};  ///< the input that the output aliases
  uint64_t address = 0;      ///< first byte in question
  uint64_t bytes = 0;        ///< number of bytes in question: the common ones
  format::ValueId value{};
  format::StackId alloc_stack{}, launch_stack{}, free_stack{};
  format::KernelId kernel{};  ///< autotune-mutation: the kernel that was launched `count` times
  uint64_t count = 0;         ///< never-written: elements
  uint64_t of = 0;            ///< number of elements that were examined
  bool all = true;            ///< they were all of the elements
  Owner before{};             ///< never-written: the former owner of the memory
  uint64_t hash_before = 0;   ///< input-mutated, overwritten
  uint64_t hash_after = 0;
  bool shared = false;        ///< input-mutated: another tensor shares that memory
  bool loosely = false;       ///< overwritten: the overwritten bytes may be needed no more
  bool hint = false;          ///< input-mutated, overwritten: the buffer may hold a running average
  bool in_part = false;       ///< overwritten: `first` covers a part of the memory
  bool writer_known = false;  ///< overwritten: op and slot are the writer's, else the reader's
  /// overwritten: the record before the write, the record that differs, and the first record of the
  /// bytes that it has
  Owner made{}, reader{}, first{};
  Owner last{};           ///< overwritten: the last record before the write, if not `made`
  uint64_t given_to = 0;  ///< freed-under-output: size of the allocation that has the memory now
  /// Number of times that this op did this in this scope, including this one.
  uint64_t occurrence = 1;
};

/// @return one paragraph for readers who do not know the manual.
[[nodiscard]] std::string describe(const OpFinding& finding,
                                   const format::Definitions& definitions);

/// @return the record without its message.
[[nodiscard]] format::Finding record_of(const OpFinding& finding);

}  // namespace convtrace::judge
