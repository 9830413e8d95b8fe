#pragma once
/// @file origin.h
/// The origins of a job's faults, with their proofs and the ranks that received them.
///
/// Threads:    plain values.
/// Ownership:  an origin owns its texts. Names out of a trace are not escaped here.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/base/named_enum.h"
#include "format/model/event_enums.h"

namespace convtrace::origin {

/// In the order in which one explains the other, within a step. X(enumerator, value, spelling).
#define CONVTRACE_ORIGIN_KINDS(X)      \
  X(kMismatch, 0, "mismatch")          \
  X(kWrongContent, 1, "wrong-content") \
  X(kUnequal, 2, "unequal")            \
  X(kWrongSum, 3, "wrong-sum")         \
  X(kScale, 4, "scale")                \
  X(kNan, 5, "nan")                    \
  X(kNotReduced, 6, "not-reduced")     \
  X(kParted, 7, "parted")              \
  X(kLate, 8, "late")                  \
  X(kWritten, 9, "written")

enum class Kind : uint8_t {
#define CONVTRACE_X(name, value, text) name = value,
  CONVTRACE_ORIGIN_KINDS(CONVTRACE_X)
#undef CONVTRACE_X
};
inline constexpr size_t kKindCount = 10;

[[nodiscard]] constexpr std::string_view to_string(Kind kind) {
  switch (kind) {
#define CONVTRACE_X(name, value, text) \
  case Kind::name: return text;
    CONVTRACE_ORIGIN_KINDS(CONVTRACE_X)
#undef CONVTRACE_X
  }
  return "unknown";
}

/// The collective at which it showed, or through which others received it.
struct Through {
  std::string group, op;
  uint64_t number = 0;
  uint32_t step = 0;
  std::optional<std::string> scope{};
};

struct Origin {
  Kind kind = Kind::kNan;
  std::optional<uint32_t> rank{};  ///< where it began; nullopt: one of `suspects`, or not known
  std::vector<uint32_t> suspects{};
  uint32_t step = 0;
  uint32_t steps = 1;  ///< from that step on, with the fault
  std::optional<format::Phase> phase{};
  std::optional<std::string> scope{};  ///< module path; "" the root
  std::string op{}, slot{};
  std::string text{};                   ///< one sentence
  std::vector<std::string> evidence{};  ///< the numbers of the records, a line each
  std::string next{};                   ///< the proposed next step
  std::vector<uint32_t> ranks{};        ///< the ranks that received it, ascending
  std::optional<Through> through{};
  uint64_t times = 1;    ///< how often it was found at this place
  uint64_t order = 0;    ///< position in the order of processing
  bool dormant = false;  ///< nan: a value that may be meant, until another value confirms it

  /// It began on this rank, or on one of these.
  void blame(const std::vector<uint32_t>& known) {
    if (known.size() == 1)
      rank = known.front();
    else
      suspects = known;
  }
};

}  // namespace convtrace::origin
