#pragma once
/// @file complaints.h
/// Every message of convtrace and convtrace-diff on stderr, and every reason why two runs cannot be
/// compared or not to their ends, by a number that stays.
///
/// Place:    docs/troubleshooting.md has cause and remedy of each; a test compares that page with
///           this list and with format/base/messages.h, the messages of a traced program.
/// Numbers:  append-only: a number that went is never used again. 20 command line and
///           installation, 21 files, 22 runs, 23 contents of a trace, 24 comparison.
/// Threads:  any.

#include <cstdint>
#include <string>
#include <string_view>

#include "format/base/messages.h"

namespace convtrace::tools {

enum class MessageId : uint16_t {
  kBadSetting = messages::kBadSetting.number,  ///< as a traced program says it

  kUsage = 2001,
  kNoCommand = 2002,
  kUnknownCommand = 2003,
  kPartMissing = 2004,
  kNoPreloadPath = 2005,
  kNoPython = 2006,
  kBadMap = 2007,
  kBadDump = 2008,

  kUnreadable = 2101,
  kUnclosed = 2102,
  kDamaged = 2103,
  kExists = 2104,
  kIsInput = 2105,
  kNotWritten = 2106,
  kTwoReports = 2107,
  kNoNames = 2108,

  kNothingToTrace = 2201,
  kNothingTraced = 2202,  ///< interposer/preload/exit_notice.c writes it
  kNotStarted = 2203,
  kRepeatUnknown = 2204,
  kLikeInPart = 2205,
  kNotLike = 2206,

  kNothingRecorded = 2301,
  kNotCounted = 2302,
  kUnwatched = 2303,

  kRankMissing = 2401,
  kStepsMissing = 2402,
  kFailedProgram = 2403,
  kRecordsLost = 2404,
  kLateValues = 2405,
  kTwoHashes = 2406,
  kNoFacts = 2407,
  kNothingInCommon = 2408,
  kLittleInCommon = 2409,
  kNotWhole = 2410,
};

/// @return "CT-2001 text".
[[nodiscard]] std::string numbered(MessageId id, std::string_view text);

/// Writes `convtrace: CT-2001 text` and a line end to stderr.
void complain(MessageId id, std::string_view text);

/// Writes `convtrace: CT-2101 path: text` and a line end to stderr, with `path` escaped.
void complain(MessageId id, const std::string& path, std::string_view text);

}  // namespace convtrace::tools
