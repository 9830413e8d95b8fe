#pragma once
/// @file compare.h
/// Holds the parameters of two programs against each other.
///
/// Place:    command.h; reports are made of the result.
/// Threads:  pure functions.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/trace/names/renames.h"
#include "tools/weights/weights.h"

namespace convtrace::weights {

/// The names of the other program's modules.
struct Names {
  diff::FusedNames fused = diff::usual_fused_names();
  std::vector<diff::ScopeRename> moved{};  ///< as DiffRules::moved
  std::vector<diff::ScopeRename> modules;  ///< A is the baseline; the first that matches is used
};

/// From the harmless to the worst. kEqualNumbers: put together from pieces, counts, extrema and
/// sums are equal. kCast: rounded to another type. kPermuted: other bits with equal counts,
/// extrema and sums: another order, or layout. kParted: ranks that should hold copies do not.
enum class Verdict : uint8_t {
  kEqual,
  kEqualNumbers,
  kCast,
  kNotKnown,
  kPermuted,
  kMissing,
  kStale,
  kParted,
  kDiffers
};
inline constexpr size_t kVerdicts = 9;
[[nodiscard]] std::string_view to_string(Verdict verdict);
/// @return whether the weights of the other program are wrong.
[[nodiscard]] constexpr bool is_fault(Verdict verdict) { return verdict > Verdict::kNotKnown; }

struct Compared {
  std::string name{};               ///< in A, else in B
  std::vector<std::string> in_a{};  ///< none: missing
  std::vector<std::string> in_b{};
  Verdict verdict = Verdict::kNotKnown;
  bool stale_is_b = true;
  uint32_t stale_by = 0;  ///< recorded versions
  std::optional<uint32_t>
      version{};                     ///< step whose update it has, of the program that is not stale
  std::optional<double> distance{};  ///< relative, root mean square; of kDiffers
  std::string text{};                ///< one sentence; not escaped
};

/// The version of a program's weights that is compared.
struct Choice {
  bool start = false;  ///< the one before the first update
  std::optional<uint32_t>
      step{};  ///< else the last one up to the update of this step; none: the last
};

/// @return why a program has no such version, with those that there are, not escaped; empty if it
/// has one.
[[nodiscard]] std::string refusal(const Weights& weights, const Choice& choice);

struct Comparison {
  const Weights* a = nullptr;
  const Weights* b = nullptr;
  std::vector<Compared> parameters;  ///< worst first, then by name

  [[nodiscard]] size_t count(Verdict verdict) const;
  [[nodiscard]] size_t faults() const;
};

/// @param of_a, of_b  the versions to compare.
[[nodiscard]] Comparison compare(const Weights& a, const Weights& b, const Names& names,
                                 const Choice& of_a, const Choice& of_b);

}  // namespace convtrace::weights
