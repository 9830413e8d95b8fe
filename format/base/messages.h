#pragma once
/// @file messages.h
/// Every message from inside a traced program, by a number that never changes.
///
/// Place:    log.h prints `CT-1104`, and the trace's diagnostics begin with it, so that tests and
///           people name a message by its number; docs/troubleshooting.md has cause and remedy of
///           each. A test compares that page with this list.
/// Numbers:  append-only: the number of a removed message is never used again. 10 settings, 11 the
///           trace, 12 what is recorded, 13 the observer, 14 CUDA and CUPTI.

#include <cstdint>
#include <string>

#include "format/base/level.h"

namespace convtrace {

struct Message {
  uint16_t number;  ///< 0: a number is part of the text
  format::Level level;
  const char* site;  ///< the part of convtrace that writes it

  bool operator==(const Message& other) const { return number == other.number; }

  /// @return whether the user should act on it.
  [[nodiscard]] constexpr bool warns() const { return level <= format::Level::kWarning; }
};

/// A message with its text.
struct Notice {
  Message message;
  std::string text;
};

namespace messages {

using enum format::Level;

inline constexpr Message kBadSetting{1001, kError, "settings"};
inline constexpr Message kNotTraced{1002, kError, "settings"};
inline constexpr Message kIdleSetting{1003, kWarning, "settings"};
inline constexpr Message kNoLogFile{1004, kWarning, "settings"};
inline constexpr Message kTooLate{1005, kWarning, "settings"};
inline constexpr Message kNoPoison{1006, kWarning, "settings"};
inline constexpr Message kNoQuarantine{1007, kWarning, "settings"};
inline constexpr Message kCachedMemory{1008, kWarning, "settings"};
inline constexpr Message kMatched{1009, kInfo, "settings"};
inline constexpr Message kUnmatched{1010, kWarning, "settings"};
inline constexpr Message kNothingToTrace{1011, kWarning, "settings"};
inline constexpr Message kForked{1012, kWarning, "fork"};
inline constexpr Message kNothingLeft{1013, kWarning, "settings"};
inline constexpr Message kRuleUnused{1014, kWarning, "settings"};
inline constexpr Message kOldSettingsStay{1015, kWarning, "settings"};
inline constexpr Message kReadAgain{1016, kInfo, "settings"};
inline constexpr Message kOverruled{1017, kWarning, "settings"};
inline constexpr Message kChanged{1018, kInfo, "settings"};
inline constexpr Message kNeedsNewStart{1019, kWarning, "settings"};

inline constexpr Message kNoOutput{1101, kError, "output"};
inline constexpr Message kOtherOutput{1102, kWarning, "output"};
inline constexpr Message kTracing{1103, kInfo, "output"};
inline constexpr Message kSlowDisk{1104, kWarning, "trace"};
inline constexpr Message kEnded{1105, kInfo, "trace"};
inline constexpr Message kEndedWithLosses{1106, kWarning, "trace"};
inline constexpr Message kBudgetReached{1107, kWarning, "trace"};
inline constexpr Message kWriteFailed{1108, kError, "trace"};
inline constexpr Message kNoThread{1109, kError, "trace"};
inline constexpr Message kTurnedOff{1110, kWarning, "engine"};
inline constexpr Message kTraceLost{1111, kError, "trace"};

inline constexpr Message kFinding{1201, kWarning, "finding"};
inline constexpr Message kEveryValue{1202, kWarning, "values"};
inline constexpr Message kCpuUnwatched{1203, kInfo, "cpu memory"};
inline constexpr Message kCpuUnpoisoned{1204, kWarning, "cpu memory"};

inline constexpr Message kObserverFailed{1301, kWarning, "observer"};
inline constexpr Message kObserverEnded{1302, kWarning, "observer"};
inline constexpr Message kOperations{1303, kWarning, "operations"};
inline constexpr Message kKindUnread{1304, kInfo, "observer"};
inline constexpr Message kNamesEnd{1305, kWarning, "observer"};

inline constexpr Message kNoCupti{1401, kWarning, "cupti"};
inline constexpr Message kCuptiTaken{1402, kWarning, "cupti"};
inline constexpr Message kCuptiRefuses{1403, kWarning, "cupti"};
inline constexpr Message kCuptiEnded{1404, kWarning, "cupti"};
inline constexpr Message kLaunchesUnlike{1405, kInfo, "cupti"};
inline constexpr Message kOldDriver{1406, kWarning, "cuda"};
inline constexpr Message kContextLost{1407, kWarning, "gate"};
inline constexpr Message kGpuWorkOff{1408, kWarning, "gpu"};
inline constexpr Message kValuesCut{1409, kWarning, "gpu"};
inline constexpr Message kNoGpuQuarantine{1410, kWarning, "memory"};
inline constexpr Message kQuarantineEnds{1411, kWarning, "memory"};
inline constexpr Message kCompiling{1412, kInfo, "gpu"};

}  // namespace messages
}  // namespace convtrace
