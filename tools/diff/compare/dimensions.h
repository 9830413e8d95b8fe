#pragma once
/// @file dimensions.h
/// Activations whose dimensions the candidate has in another order, as the user says
/// (`[dimensions]` of `--map`): [sequence, batch, width] against [batch, sequence, width].
///
/// The hash, the sketch and the samples of a tensor depend on where its elements stand, so such a
/// pair is compared as tensors in pieces are: by counts, extrema and sums.
///
/// Place:    rank_diff.h, once per matched pair.
/// Threads:  pure functions.

#include <optional>
#include <vector>

#include "tools/diff/compare/compare.h"
#include "tools/trace/names/rules.h"

namespace convtrace::diff {

/// A pair of values that can be compared although their dimensions have unlike orders.
struct Turned {
  ValueRecord base_record, cand_record;
  std::vector<uint64_t> shape;
  std::vector<std::byte> base_samples, cand_samples;

  [[nodiscard]] ValueView base() const { return {base_record, shape, base_samples}; }
  [[nodiscard]] ValueView cand() const { return {cand_record, shape, cand_samples}; }
};

/// @param rules  the last that matches the baseline's value is used.
/// @return nullopt if no rule says that the dimensions of the two have unlike orders.
[[nodiscard]] std::optional<Turned> turned(const std::vector<DimensionRule>& rules,
                                           const format::Definitions& names, const ValueView& base,
                                           const ValueView& cand);

}  // namespace convtrace::diff
