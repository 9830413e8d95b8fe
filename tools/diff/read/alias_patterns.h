#pragma once
/// @file alias_patterns.h
/// Finds operands of an op or a kernel that overlap in one run and never in the other.
///
/// A compiler that drops a copy turns op(clone(x), x) into op(x, x). Addresses of two runs cannot
/// be compared, but whether two operands overlap can. Operands of a tagged op overlap if their
/// elements do, pointers of a kernel if they are equal. Where and how often they overlap does not
/// matter.
///
/// Place:    step_stream.h collects the patterns of each step; diff.h compares those of a rank's
///           two runs.
/// Threads:  one.
/// Memory:   an entry for each op or kernel of a scope; at most kMostTargets.

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::diff {

/// A pair of operands that overlaps in one run only.
struct AliasDifference {
  uint32_t rank = 0;
  uint32_t step = 0;  ///< the first such step
  format::Phase phase = format::Phase::kForward;
  std::string scope{}, op{}, kernel{};  ///< op or kernel is empty
  std::string slot, other;
  bool in_cand = false;
};
inline constexpr size_t kMaxAliasDifferences = 256;

class AliasPatterns {
 public:
  static constexpr size_t kMostTargets = size_t{1} << 16;
  /// An op or kernel of a scope. The ids are those that all runs of a diff share.
  struct Target {
    format::StringId scope, name;
    format::Phase phase = format::Phase::kForward;
    bool is_kernel = false;
    auto operator<=>(const Target&) const = default;
  };

  /// @param slot  of the tensor, a shared id.
  void take(const format::Op& event, const Target& target, format::StringId slot);
  void take(const format::Launch& event, const Target& target);

  /// @return whether two pointers of a launch are equal.
  [[nodiscard]] static bool overlaps(const format::Launch& event);

  /// Appends the differences, up to kMaxAliasDifferences.
  static void compare(const AliasPatterns& base, const AliasPatterns& cand, uint32_t rank,
                      const format::Definitions& names, std::vector<AliasDifference>& found);

 private:
  /// From a pair of slots of an op, or of parameter positions of a kernel, to the step that showed
  /// it first.
  using Pairs = std::map<std::pair<uint32_t, uint32_t>, uint32_t>;
  struct Tensor {
    format::StringId slot;
    uint64_t address = 0, bytes = 0;
  };

  Pairs* pairs_of(const Target& target);
  static void only_in(const AliasPatterns& run, const AliasPatterns& other, AliasDifference like,
                      const format::Definitions& names, std::vector<AliasDifference>& found);

  std::map<Target, Pairs> targets_;
  /// By thread: tensors of its current op.
  std::unordered_map<uint32_t, std::vector<Tensor>> tensors_;
};

}  // namespace convtrace::diff
