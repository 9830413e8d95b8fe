#pragma once
/// @file ranks.h
/// What the diff says of two runs of several ranks, one step each, for tests.

#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tools/diff/ranks/diff.h"

namespace convtrace::test {

using Numbers = std::vector<float>;
using Step = std::vector<StatsSpec>;  ///< of one rank

inline Numbers numbers(uint32_t seed, size_t count = 64) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Numbers values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

/// @return the `number`-th of `parts` equal parts.
inline Numbers part(const Numbers& all, size_t number, size_t parts) {
  const size_t size = all.size() / parts;
  const auto from = all.begin() + static_cast<ptrdiff_t>(number * size);
  return {from, from + static_cast<ptrdiff_t>(size)};
}

/// @param shape  empty: one dimension.
inline StatsSpec value(const char* scope, const char* slot, const Numbers& values,
                       format::Phase phase = format::Phase::kForward,
                       std::vector<uint64_t> shape = {}) {
  StatsSpec spec{.scope = scope, .slot = slot, .phase = phase, .values = values};
  spec.hash = hash_of(values);
  if (!shape.empty()) spec.shape = std::move(shape);
  return spec;
}

/// Writes a trace of each rank but the last `missing`.
inline void write_ranks(const TempDir& folder, const std::vector<Step>& ranks, size_t missing) {
  for (uint32_t rank = 0; rank + missing < ranks.size(); ++rank) {
    TraceBuilder trace(folder / (std::to_string(rank) + ".ctrace"));
    trace.rank(rank, static_cast<uint32_t>(ranks.size())).step(0);
    for (const StatsSpec& spec : ranks[rank]) trace.stats(spec);
    trace.close();
  }
}

/// Writes the runs and compares them. @param missing  ranks of the candidate that have no trace.
inline diff::DiffResult compared(const std::vector<Step>& base, const std::vector<Step>& cand,
                                 const diff::DiffRules& rules = {}, size_t missing = 0) {
  const TempDir base_folder, cand_folder;
  write_ranks(base_folder, base, 0);
  write_ranks(cand_folder, cand, missing);
  diff::DiffInputs inputs{.base = base_folder / ".", .cand = cand_folder / "."};
  inputs.rules = rules;
  diff::DiffResult result;
  std::string error;
  const bool done = diff::run_diff(inputs, nullptr, result, error);
  INFO(error);
  REQUIRE(done);
  return result;
}

}  // namespace convtrace::test
