// What a user writes: a TOML file of settings and rules, a set of steps or ranks, patterns. The
// first byte says which.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "format/settings/controls.h"
#include "format/settings/match_report.h"
#include "format/settings/pattern.h"
#include "format/settings/step_set.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace convtrace::settings;

void load_file(std::string_view text) {
  static const convtrace::test::TempDir folder;
  static const std::string path = folder / "fuzz.toml";
  std::ofstream(path, std::ios::binary) << text;
  const std::string entry = "CONVTRACE_CONFIG=" + path;
  const char* environment[] = {entry.c_str(), nullptr};
  const LoadedControls loaded = load_controls(environment);
  if (!loaded.problems.empty() && !loaded.rules.empty()) abort();
  for (const std::string& problem : loaded.problems)
    if (problem.find('\n') != std::string::npos) abort();  // a problem is one line
}

/// What was understood is printed as it is understood again.
void parse_sets(std::string_view text) {
  if (const auto steps = StepSet::parse_steps(text); steps.ok()) {
    const auto again = StepSet::parse_steps(steps.value().steps_text());
    if (!again.ok() || again.value().steps_text() != steps.value().steps_text()) abort();
    if (again.value().contains(7) != steps.value().contains(7)) abort();
  }
  (void)StepSet::parse_ranks(text);
}

void match(std::string_view text) {
  const std::string_view list = text.substr(0, text.find('\n'));
  const std::string_view name = text.substr(std::min(list.size() + 1, text.size()));
  const auto patterns = compile_patterns(list);
  if (!patterns.ok()) return;
  for (const Pattern& pattern : patterns.value()) {
    const bool is_glob = !pattern.text().starts_with("re:");
    const bool short_enough = pattern.text().size() < 64 && name.size() < 256;
    // Two ways to judge a glob: the matcher, and the distance of a suggestion.
    if (is_glob && short_enough &&
        pattern.matches(name) != (pattern_distance(pattern.text(), name) == 0))
      abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0]) {
    case 't': load_file(text); break;
    case 's': parse_sets(text); break;
    default: match(text);
  }
  return 0;
}
