#pragma once
/// @file alias_patterns.h
/// Which operands of an op, or of a kernel, lie over each other in one run and never in the other.
///
/// A compiler that drops a copy turns op(clone(x), x) into op(x, x). Addresses of two runs cannot
/// be compared, but whether two operands overlap can. Of a tagged op they overlap when their
/// elements do, of a kernel when two of its pointers are one address; where and how often does not
/// matter.
///
/// Place:    step_stream.h collects of the steps it takes; diff.h compares a rank's two runs.
/// Threads:  one.
/// Memory:   per op or kernel of a scope; at most kMostTargets.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::diff {

/// One pair of operands that overlaps in one run alone.
struct AliasDifference {
  uint32_t rank = 0;
  uint32_t step = 0;  ///< the first
  format::Phase phase = format::Phase::kForward;
  std::string scope, op, kernel;  ///< op or kernel: empty
  std::string slot, other;
  bool in_cand = false;
};
inline constexpr size_t kMaxAliasDifferences = 256;

class AliasPatterns {
 public:
  static constexpr size_t kMostTargets = size_t{1} << 16;
  /// Ids are those that all runs of a diff share.
  struct Target {
    format::StringId scope, name;
    format::Phase phase = format::Phase::kForward;
    bool is_kernel = false;
    auto operator<=>(const Target&) const = default;
  };

  /// @param slot  of a tensor, shared.
  void take(const format::Op& event, const Target& target, format::StringId slot);
  void take(const format::Launch& event, const Target& target);

  /// @return whether two pointers of a launch are one address.
  [[nodiscard]] static bool overlaps(const format::Launch& event);

  /// Appends what differs, up to kMaxAliasDifferences.
  static void compare(const AliasPatterns& base, const AliasPatterns& cand, uint32_t rank,
                      const format::Definitions& names, std::vector<AliasDifference>& found);

 private:
  /// Slots of an op, or positions of a kernel's parameters; to the step it was first seen in.
  using Pairs = std::map<std::pair<uint32_t, uint32_t>, uint32_t>;
  struct Tensor {
    format::StringId slot;
    uint64_t address = 0, bytes = 0;
  };

  Pairs* pairs_of(const Target& target);
  static void only_in(const AliasPatterns& run, const AliasPatterns& other, AliasDifference like,
                      const format::Definitions& names, std::vector<AliasDifference>& found);

  std::map<Target, Pairs> targets_;
  std::unordered_map<uint32_t, std::vector<Tensor>> tensors_;  ///< by thread, of its op at hand
};

}  // namespace convtrace::diff
