#pragma once
/// @file finding.h
/// A fault that a check found in a run, with the numbers that prove it.
///
/// Threads:    plain values.
/// Ownership:  a finding owns its texts. Names out of a trace are not escaped here.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/model/event_enums.h"
#include "format/model/events.h"
#include "tools/trace/flow/made_by.h"

namespace convtrace::check {

/// kError: it cannot be right. kWarning: it is wrong in nearly every program. kHint: it may be
/// meant; exit code 0.
enum class Severity : uint8_t { kError, kWarning, kHint };
[[nodiscard]] constexpr std::string_view to_string(Severity severity) {
  constexpr std::string_view kNames[] = {"error", "warning", "hint"};
  return kNames[static_cast<size_t>(severity)];
}

/// The causes of a NaN or infinity of which only the record is known.
inline constexpr std::string_view kCausesOfNan =
    "an overflow, a division by zero, a logarithm or root of nothing, memory that was not written";

struct Finding {
  std::string_view id{};  ///< a name of catalog.h, or the kind of a finding about memory
  Severity severity = Severity::kWarning;
  uint32_t rank = 0;
  std::optional<uint32_t> step{};  ///< the first in which it shows
  std::optional<format::Phase> phase{};
  std::optional<std::string> scope{};  ///< module path; "" the root
  std::string op{}, slot{};
  std::string text{};                   ///< one sentence
  std::vector<std::string> evidence{};  ///< the numbers of the records, a line each
  std::string cause{};                  ///< the usual cause
  std::string next{};                   ///< the proposed next step
  uint64_t times = 1;                   ///< how often it was found at this place
  /// For a gradient: the call whose backward made it, which is also the finding's place.
  std::optional<diff::MadeBy> made_by{};
};

}  // namespace convtrace::check
