#pragma once
/// @file setting_texts.h
/// Two values of each setting that differ from each other and from its default, for tests of
/// precedence.

#include <algorithm>
#include <string_view>

#include "format/settings/settings.h"
#include "tests/support/catch.h"

namespace convtrace::test {

struct SettingTexts {
  std::string_view name, one, other;
};

/// Settings that are neither switches nor choices of two.
inline constexpr SettingTexts kSettingTexts[] = {{"CONVTRACE_OUTPUT", "a.ctrace", "b.ctrace"},
                                                 {"CONVTRACE_MODE", "hash", "launches"},
                                                 {"CONVTRACE_STEPS", "1", "2-5"},
                                                 {"CONVTRACE_OVERHEAD", "5%", "0.5%"},
                                                 {"CONVTRACE_RANKS", "0-3", "7"},
                                                 {"CONVTRACE_INCLUDE", "a", "b;c"},
                                                 {"CONVTRACE_EXCLUDE", "a", "re:b"},
                                                 {"CONVTRACE_OPS", "a", "re:b"},
                                                 {"CONVTRACE_COMPILED", "off", "all"},
                                                 {"CONVTRACE_MAX_BYTES", "1G", "5M"},
                                                 {"CONVTRACE_RING", "3", "9,nan"},
                                                 {"CONVTRACE_SPIKE", "4,10", "5,10000000"},
                                                 {"CONVTRACE_SAMPLES", "0", "4096"},
                                                 {"CONVTRACE_SNAPSHOT_MEMORY", "1G", "2G"},
                                                 {"CONVTRACE_SNAPSHOT_FULL", "block", "drop"},
                                                 {"CONVTRACE_CPU_ALLOC", "on", "off"},
                                                 {"CONVTRACE_STACKS", "all", "none"},
                                                 {"CONVTRACE_CUPTI", "/a", "/b"},
                                                 {"CONVTRACE_LOG", "error", "debug"},
                                                 {"CONVTRACE_LOG_FILE", "a", "b"}};

/// @pre not CONVTRACE_CONFIG, which names the file. One of the two texts of a switch or a choice of
/// two is its default.
inline SettingTexts texts_of(const settings::SettingSpec& spec) {
  const auto* const found = std::ranges::find(kSettingTexts, spec.name, &SettingTexts::name);
  if (found != std::end(kSettingTexts)) return *found;
  const size_t bar = spec.values.find('|');
  REQUIRE(bar != std::string_view::npos);
  const SettingTexts texts{spec.name, spec.values.substr(bar + 1), spec.values.substr(0, bar)};
  REQUIRE(texts.one.find('|') == std::string_view::npos);
  return texts;
}

}  // namespace convtrace::test
