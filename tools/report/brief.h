#pragma once
/// @file brief.h
/// The short answer of a command, for programs that read it within a limit of their own.
///
/// Source:   docs/reference.md "Short answers", docs/brief.schema.json.
/// Threads:  pure functions.

#include <string>
#include <vector>

#include "tools/common/json.h"

namespace convtrace::report {

/// Bytes of the longest answer, without the line's end.
inline constexpr size_t kMostBriefBytes = 2048;

/// How sure the place is. kProven: equal before it and different there, or impossible as it is.
/// kLikely: of a rule that knows exceptions. kPossible: no larger than what else may explain it.
enum class Confidence : uint8_t { kNone, kPossible, kLikely, kProven };
/// Of a finding, by its level.
template <typename Level>
[[nodiscard]] constexpr Confidence confidence_of(Level level) {
  return level == Level::kError     ? Confidence::kProven
         : level == Level::kWarning ? Confidence::kLikely
                                    : Confidence::kPossible;
}

struct Brief {
  std::string verdict{};   ///< a word of the command
  std::string headline{};  ///< the verdict in one sentence
  /// Keys of `place_json`, or null where nothing has a place.
  tools::Json place{};
  std::string cause{};  ///< "": not known
  Confidence confidence = Confidence::kNone;
  std::vector<std::string> evidence{};     ///< the first three are kept
  std::vector<std::string> next{};         ///< commands, or advice; all are kept, or none
  std::vector<std::string> cannot_tell{};  ///< what was not compared or judged, and why
};

/// The answer of a command that found nothing so far. @param incomplete  lines about traces that
/// were not read to their end. @param notes  what was not judged, and why.
[[nodiscard]] Brief nothing_found(std::string headline, const std::vector<std::string>& incomplete,
                                  const std::vector<std::string>& notes);

/// @return where a command with --json and --brief writes JSON; "": nowhere.
[[nodiscard]] inline std::string json_path(const std::string& json, bool brief) {
  return brief && json.empty() ? "-" : json;
}

/// @return JSON on one line, at most kMostBriefBytes long. Long texts are cut, commands never: they
/// are left out together where they do not fit. `left_out` counts what is missing of the lists.
[[nodiscard]] std::string brief_json(const Brief& brief);

}  // namespace convtrace::report
