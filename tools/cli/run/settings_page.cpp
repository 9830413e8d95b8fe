#include "tools/cli/run/settings_page.h"

#include "format/settings/rules.h"
#include "format/settings/settings.h"
#include "tools/cli/run/run.h"

namespace convtrace::tools {
namespace {

constexpr const char* kHead =
    R"(# Settings and rules

Made by `convtrace --generate settings` from the table that also parses them; a test compares the two.

Each setting is an environment variable, an option of `convtrace run` and a key of the TOML file that `CONVTRACE_CONFIG`
names. An option wins over the environment, the environment over the file. A bad value or an unknown name is one line with the
nearest valid name: `convtrace run` then ends with exit code 2, under a plain `LD_PRELOAD` the program runs untraced.

A change of the file applies within a second to settings marked *live* and to rules; the change is recorded in the trace. A file that is
broken keeps the old settings, and a line says so. Graphs keep the rules they were made
with, and the memory for values of a GPU stays as it was at the start.

)";

constexpr const char* kRuleHead =
    R"(
## Rules

A `[[rule]]` says what is to be taken of some kernels or modules. The first rule with `capture` that fits a module and a step decides for
it; of a kernel, each rule takes its own. At the end of a run the trace says how often each rule was used, and a rule that matched
nothing is a warning with the nearest names that occurred.

Patterns are globs over the whole name (`*`, `?`), or `re:` and an expression that is searched anywhere in it.
Steps are `0|5-8|100-120,every=50`: numbers and inclusive ranges between `|`, `5-` is open, `every` takes each n-th step of its range.

| key | values | meaning |
|---|---|---|
)";

/// A bar would end a cell.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char c : text) safe += c == '|' ? std::string("\\|") : std::string(1, c);
  return safe;
}

std::string code(std::string_view text) { return text.empty() ? "" : '`' + cell(text) + '`'; }

}  // namespace

std::string settings_page() {
  std::string page = kHead;
  page +=
      "## Settings\n\n| variable | option | key | values | default | meaning "
      "|\n|---|---|---|---|---|---|\n";
  for (const settings::SettingSpec& spec : settings::setting_table()) {
    page += "| " + code(spec.name) + " | " + code(option_name(spec)) + " | " +
            code(settings::setting_key(spec)) + (spec.reloads ? " *live*" : "") + " | " +
            code(spec.values) + " | " + code(spec.default_text) + " | " + cell(spec.help) + " |\n";
  }
  page += kRuleHead;
  for (const settings::RuleKeySpec& key : settings::rule_keys())
    page += "| " + code(key.name) + " | " + code(key.values) + " | " + cell(key.help) + " |\n";
  page.pop_back();  // the caller ends the last line
  return page;
}

std::vector<ManualSection> settings_sections() {
  ManualSection environment{"ENVIRONMENT", {}};
  for (const settings::SettingSpec& spec : settings::setting_table()) {
    environment.entries.emplace_back(std::string(spec.name) + '=' + std::string(spec.values),
                                     std::string(spec.help));
  }
  ManualSection rules{"RULES", {}};
  for (const settings::RuleKeySpec& key : settings::rule_keys())
    rules.entries.emplace_back(std::string(key.name) + " = " + std::string(key.values),
                               std::string(key.help));
  return {environment, rules};
}

}  // namespace convtrace::tools
