#pragma once
/// @file class_map.h
/// The worst class of each module in each step, for the heat map of the HTML page.
///
/// Memory:   a byte for each module and step.
/// Threads:  not thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "tools/common/json.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

class ClassMap {
 public:
  /// @param scope, @param step  numbers from 0 on.
  void add(uint32_t scope, uint32_t step, Class verdict);

  /// @param limit  bytes of text: steps are put together, by their worst class, until the lines fit.
  /// @return `steps_per_cell`, and `lines`: for each scope runs of cells, each a letter, "a" for
  /// the first class and so on, "-" where nothing was compared, and the run's length: "a120f3".
  [[nodiscard]] tools::Json json(size_t limit = 2'000'000) const;

 private:
  std::vector<std::vector<uint8_t>> lines_;  ///< 1 + the class; 0 where nothing was compared
};

}  // namespace convtrace::diff
