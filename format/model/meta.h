#pragma once
/// @file meta.h
/// Facts about the process that made a trace. Compared before anything else by convtrace-diff.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace convtrace::format {

/// Bits of TraceMeta::required_features: features that a reader must know to read the trace correctly.
inline constexpr uint32_t kFeatureHash2 = 1;  ///< values are hashed as FORMAT.md 6.10 says

struct TraceMeta {
  std::array<uint8_t, 16> uuid{};
  uint64_t start_realtime_ns = 0;   ///< CLOCK_REALTIME
  uint64_t start_monotonic_ns = 0;  ///< CLOCK_MONOTONIC at the same moment
  uint32_t required_features = kFeatureHash2;
  std::string tool_version;
  std::string host;
  uint32_t pid = 0;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::vector<std::string> command_line;  ///< secrets already masked
  /// Everything else, name and value, ascending by name. Prefixes: `version.` (driver, cuda, cupti,
  /// torch, python...), `device.`, `switch.` (environment variables and framework flags that change
  /// numerics), `run.` (directory, and of Python executable and PYTHONPATH), `exit.` (how it ended),
  /// `setting.` (convtrace's own), `recovered.`, `stripped.` (uuid of which trace it was). A META
  /// record may be repeated; later values of a name win.
  std::vector<std::pair<std::string, std::string>> facts;

  /// @return the value of a fact, the last where there are several; nullopt: it is not recorded.
  [[nodiscard]] std::optional<std::string_view> fact(std::string_view name) const {
    std::optional<std::string_view> value;
    for (const auto& [known, text] : facts) {
      if (known == name) value = text;
    }
    return value;
  }
};

/// @return whether the hashes of values are those of version 2.
inline bool hashes_anew(const TraceMeta& meta) {
  return (meta.required_features & kFeatureHash2) != 0;
}
/// @return whether hashes of the two traces can be compared. Those of two versions say nothing of each
/// other.
inline bool hash_alike(const TraceMeta& a, const TraceMeta& b) {
  return hashes_anew(a) == hashes_anew(b);
}

}  // namespace convtrace::format
