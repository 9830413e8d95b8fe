#pragma once
/// @file whole_record.h
/// Makes the record of a whole value from the ranks' values, in one of several ways.
///
/// Place:    whole_values.h, which chooses the way.
/// Memory:   borrows the steps of the ranks.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "Other layouts".

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/diff/whole/held.h"
#include "tools/trace/names/rules.h"

namespace convtrace::diff {

struct WholeRecord {
  /// The value of one rank. @param held  has steps that outlive this.
  explicit WholeRecord(const Held& held);

  ValueRecord record;
  std::span<const uint64_t> shape;
  std::vector<std::byte> samples;
  std::vector<Held> pieces;  ///< the values that `record` is made of
};

/// @return any of equal copies.
[[nodiscard]] WholeRecord copy_of(const HeldValue& value);

/// @param copies  of each piece. @param partner  the other run's value, or null.
[[nodiscard]] WholeRecord of_pieces(const HeldValue& value, uint64_t copies,
                                    const HeldValue* partner);

/// @return the mean of the ranks' values, or the sum of their distinct values.
[[nodiscard]] WholeRecord reduced(const HeldValue& value, Reduction reduction);

/// @return for unlike values of the whole's size, the copy that is furthest from the other run's
/// value, or the sum of the values as terms if that is nearer. `in_pieces` is set for the sum.
/// @param are_terms  prefers the sum, since the other run's values are unlike, too.
/// @param factor     multiplies the sum.
[[nodiscard]] WholeRecord in_full(const HeldValue& value, const HeldValue& partner, bool are_terms,
                                  double factor);

/// @return whether the value is the gradient of an activation, not of a parameter.
[[nodiscard]] inline bool is_activation_gradient(const ValueRecord& record) {
  return record.kind == Role::kGradOutput || record.kind == Role::kGradInput;
}

}  // namespace convtrace::diff
