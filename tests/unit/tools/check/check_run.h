#pragma once
/// @file check_run.h
/// A small training, changed where a test plants a bug, written as a trace and judged by
/// `convtrace check`:
///
///     Training run = training(4);
///     run.at(2, "fc2", "output:0").values[3] = kNan;
///     CHECK(found(run) == std::vector<Found>{{"nan", Severity::kError, 2, "fc2", "output:0"}});
///
/// Errors:   std::runtime_error where a test names what the training has not.

#include <functional>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_builder.h"
#include "tools/check/model/result.h"

namespace convtrace::test {

using check::Severity;
using format::Phase;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A finding as tests compare it. No scope: "-".
struct Found {
  std::string id{};
  Severity severity = Severity::kError;
  std::optional<uint32_t> step{};
  std::string scope = "-", slot{};
  bool operator==(const Found&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Found& found);

/// A record of a training: a value, or a fact where it has a name.
struct Entry {
  uint32_t step = 0;
  StatsSpec value{};  ///< of a fact the scope alone
  std::string fact{}, text{};
  format::Padding padding = format::Padding::kNone;
  uint64_t pad_count = 0;
};

struct Training {
  std::vector<Entry> entries{};  ///< in the order of the records
  uint32_t rank = 0, world_size = 1;

  /// Behind the facts that the step has, before its values.
  Training& fact(uint32_t step, const ScopeName& scope, std::string name, std::string text);
  /// The last one of its step.
  Training& value(uint32_t step, StatsSpec value);
  /// Puts a record before the first of a step with this slot.
  Training& before(uint32_t step, const ScopeName& scope, std::string_view slot, StatsSpec value);
  /// The first of its name in a step; with a phase the first in it.
  StatsSpec& at(uint32_t step, const ScopeName& scope, std::string_view slot,
                std::optional<Phase> phase = {});
  /// Removes all of this name in a step, or in all steps.
  Training& erase(std::optional<uint32_t> step, const ScopeName& scope, std::string_view slot,
                  std::optional<Phase> phase = {});
  Training& erase_fact(std::string_view name);
  void append_to(TraceBuilder& trace) const;
  void write(const std::string& path) const;
};

/// `steps` steps of two layers "fc1" and "fc2" in a root module under SGD with momentum, in which
/// nothing is wrong. Weights and gradients are those of any `seed`, data and outputs its own.
[[nodiscard]] Training training(uint32_t steps, uint32_t seed = 0);
/// `count` numbers in [-1, 1) that look random; the same for the same seed.
[[nodiscard]] std::vector<float> noise(uint32_t seed, size_t count);
[[nodiscard]] std::vector<float> scaled(std::vector<float> values, double factor);

/// All default checks, or those of `only`. Ranks are traces in the order of their numbers.
[[nodiscard]] check::CheckResult checked(const std::vector<Training>& ranks,
                                         const std::vector<std::string>& only = {});
[[nodiscard]] check::CheckResult checked(const Training& run,
                                         const std::vector<std::string>& only = {});
/// The same of a trace that `fill` writes and leaves open.
[[nodiscard]] check::CheckResult checked(const std::function<void(TraceBuilder&)>& fill,
                                         const std::vector<std::string>& only = {});

[[nodiscard]] std::vector<Found> found(const check::CheckResult& result);
[[nodiscard]] std::vector<Found> found(const Training& run);
/// Of one check alone.
[[nodiscard]] std::vector<Found> found(const Training& run, const std::string& id);
/// How often a check was judged in all ranks.
[[nodiscard]] uint64_t judged(const check::CheckResult& result, std::string_view id);
/// Whether a check had something to judge and found nothing: a look-alike.
[[nodiscard]] bool silent(const Training& run, const std::string& id);
/// Whether a check found nothing, since it had nothing to judge.
[[nodiscard]] bool unknown(const Training& run, const std::string& id);

[[nodiscard]] inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace convtrace::test
