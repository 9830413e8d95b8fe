#pragma once
/// @file compared.h
/// What the diff says of two Runs, for tests.

#include <ostream>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/tools/diff/run.h"
#include "tools/diff/ranks/diff.h"

namespace convtrace::test {

/// Writes the runs and compares them. Their metadata are alike as a rule: unless `rules` says
/// otherwise they count as runs that need not repeat. @param table  the limits of rounding.
inline diff::DiffResult compared(const Run& base, const Run& cand,
                                 const std::vector<Run>& noise = {},
                                 const diff::DiffRules& rules = {},
                                 std::span<const diff::BirthRow> table = diff::kBirthRows) {
  const TempDir dir;
  base.write(dir / "base.ctrace");
  cand.write(dir / "cand.ctrace");
  diff::DiffInputs inputs{.base = dir / "base.ctrace", .cand = dir / "cand.ctrace"};
  inputs.rules = rules;
  inputs.table = table;
  if (rules.exact == diff::ExactChoice::kAuto) inputs.rules.exact = diff::ExactChoice::kOff;
  for (const Run& run : noise) {
    inputs.noise.push_back(dir / ("noise" + std::to_string(inputs.noise.size()) + ".ctrace"));
    run.write(inputs.noise.back());
  }
  diff::DiffResult result;
  std::string error;
  const bool done = diff::run_diff(inputs, nullptr, result, error);
  INFO(error);
  REQUIRE(done);
  return result;
}

inline uint64_t count(const diff::DiffResult& result, diff::Class verdict) {
  return result.counts[static_cast<size_t>(verdict)];
}

struct Where {
  uint32_t step;
  format::Phase phase;
  std::string scope, slot;
  bool operator==(const Where&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Where& w) {
  return out << "step " << w.step << " " << to_string(w.phase) << " " << w.scope << " " << w.slot;
}

inline Where where(const diff::DiffResult& result) {
  REQUIRE(result.root.has_value());
  const diff::RecordReport& r = result.root->record;
  return {r.step, r.phase, r.scope, r.slot};
}

}  // namespace convtrace::test
