#pragma once
/// @file setting_values.h
/// Parses and prints the types of settings' values; settings.cpp binds them to members.
///
/// Threads:  pure functions.
/// Errors:   a parser returns "", or why the text is invalid; then it sets no value.

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "format/settings/step_set.h"

namespace convtrace::settings {

/// The largest number of raw values of one tensor that can be recorded.
inline constexpr uint32_t kMaxSamples = 4096;

/// `0` or `1`.
[[nodiscard]] std::string parse_flag(std::string_view text, bool& value);

/// A decimal number of at most `maximum`.
[[nodiscard]] std::string parse_count(std::string_view text, uint32_t maximum, uint32_t& value);

/// Bytes, with an optional suffix K, M, G or T (powers of 1024), at least 1; or `auto`, which is 0.
[[nodiscard]] std::string parse_size(std::string_view text, uint64_t& value);
/// @return the largest suffix that divides, "20G"; `auto` for 0.
[[nodiscard]] std::string print_size(uint64_t value);

/// A number above 0, with or without `%`, as a fraction.
[[nodiscard]] std::string parse_percent(std::string_view text, double& value);
/// @return "5%"; nothing for 0.
[[nodiscard]] std::string print_percent(double value);

[[nodiscard]] std::string parse_steps(std::string_view text, StepSet& value);
[[nodiscard]] std::string parse_ranks(std::string_view text, StepSet& value);

/// One of `names`, as its index.
[[nodiscard]] std::string parse_choice(std::string_view text,
                                       std::span<const std::string_view> names, size_t& index);

/// Checks a list for CONVTRACE_INCLUDE: every pattern compiles.
[[nodiscard]] std::string check_patterns(std::string_view text);

/// Checks a file name for CONVTRACE_OUTPUT: `%` stands before h, p, r or another `%`.
[[nodiscard]] std::string check_output(std::string_view text);

/// Triggers that make the flight recorder write.
enum class Trigger : uint8_t { kNan, kAlias, kSignal, kUsr2, kSpike };
inline constexpr size_t kTriggerCount = 5;

/// CONVTRACE_RING.
struct Ring {
  uint32_t steps = 0;                     ///< 0: no ring, all events are written
  std::bitset<kTriggerCount> triggers{};  ///< all of them if the setting names none
  [[nodiscard]] bool on(Trigger trigger) const {
    return triggers.test(static_cast<size_t>(trigger));
  }
};

/// CONVTRACE_SPIKE: when a loss counts as a spike.
struct Spike {
  double sigma = 6;       ///< standard deviations above the recent losses
  double absolute = 1e6;  ///< or above this number
};

/// `SIGMA[,ABSOLUTE]`
[[nodiscard]] std::string parse_spike(std::string_view text, Spike& value);
[[nodiscard]] std::string print_spike(const Spike& value);

/// `N[,trigger...]`
[[nodiscard]] std::string parse_ring(std::string_view text, Ring& value);
[[nodiscard]] std::string print_ring(const Ring& value);

}  // namespace convtrace::settings
