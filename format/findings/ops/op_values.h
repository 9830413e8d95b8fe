#pragma once
/// @file op_values.h
/// Judges changes that a tagged op makes to values: takes events, makes findings.
///
/// - input-mutated: an input, a gradient or a kept tensor has another hash after the op than before,
///   and nothing declares that the op writes it. The observer takes the second hash only for such
///   tensors. It is an error where another tensor shares that memory (slots grad_output_shared:I,
///   saved_shared:I). A buffer that a backward writes may hold a running average, unless all of it was
///   multiplied by one number; it is a hint (saved_buffer_after:I), and no finding where PyTorch has
///   counted the write (saved_buffer_counted:I).
/// - never-written: with CONVTRACE_POISON, elements of an output still hold the pattern of new
///   memory, and no element of an input does. On a device only samples are examined. The finding
///   names the former owner of the memory.
/// - autotune-mutation: autotune_bursts.h.
///
/// Place:    used by trace_judge.h.
/// Threads:  one.
/// Source:   docs/findings.md.

#include <map>
#include <tuple>
#include <vector>

#include "format/findings/common/recent.h"
#include "format/findings/ops/autotune_bursts.h"
#include "format/findings/ops/last_owners.h"
#include "format/findings/ops/op_finding.h"
#include "format/findings/ops/open_ops.h"
#include "format/findings/ops/slot_roles.h"
#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

class OpValues {
 public:
  using Findings = std::vector<OpFinding>;

  /// @param definitions  of the trace; outlive this.
  explicit OpValues(const format::Definitions& definitions)
      : bursts_(definitions), roles_(definitions) {}

  /// @return whether this class makes findings of that kind.
  [[nodiscard]] static bool judges(format::FindingKind kind) {
    return kind == format::FindingKind::kInputMutated ||
           kind == format::FindingKind::kAutotuneMutation ||
           kind == format::FindingKind::kNeverWritten;
  }

  /// @param[out] findings  new ones are appended.
  void see(const format::Event& event, Findings& findings) {
    const auto* const launch = std::get_if<format::Launch>(&event);
    if (launch == nullptr) return judge(event, findings);
    if (bursts_.in_op()) bursts_.on(*launch);
  }

 private:
  struct Taken {
    uint64_t hash = 0;
    format::StringId slot;
  };
  struct OpenOp {
    bool took_poison = false;
  };

  void judge(const format::Event& event, Findings& findings);
  void on(const format::TensorStats& event, Findings& findings);
  void on(const format::Op& event, Findings& findings);
  void compare(const format::TensorStats& left, SlotRole role, Findings& findings);
  void took_poison(const format::TensorStats& input);
  [[nodiscard]] bool may_have_brought_poison(const format::TensorStats& output);
  void never_written(const format::TensorStats& event, Findings& findings);
  void report(OpFinding finding, Findings& findings);

  AutotuneBursts bursts_;
  LastOwners owners_;
  SlotRoles roles_;
  Recent<Taken> taken_;
  std::map<uint64_t, format::Stats> buffers_;  ///< by key as taken_: buffers before a backward
  Recent<bool> brought_poison_;  ///< by op and call of a module: inputs on a device had the pattern
  OpenOps<OpenOp> open_;
  using Key = std::tuple<format::FindingKind, format::StringId, format::StringId, format::StringId>;
  std::map<Key, uint64_t> occurrences_;
};

}  // namespace convtrace::judge
