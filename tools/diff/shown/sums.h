#pragma once
/// @file sums.h
/// Statistics of several tensors together, which do not depend on the order of their elements.
///
/// Place:    moved_data.h, verdict/arranged.h.
/// Threads:  plain values.

#include <limits>

#include "tools/trace/model/record.h"

namespace convtrace::diff {

struct Sums {
  double count = 0, sum = 0, l1 = 0, squares = 0;
  double low = std::numeric_limits<double>::infinity(), high = -low, least = low;

  void add(const ValueRecord& record);
  /// @return whether both are of as many elements, and all statistics agree but for the order in
  /// which f64 numbers were added.
  [[nodiscard]] bool equals(const Sums& other) const;
  /// @return whether they are equal, and not by chance. @param trials  comparisons that were made.
  [[nodiscard]] bool agree(const Sums& other, double trials) const;
};

}  // namespace convtrace::diff
