#include "format/settings/controls.h"

#include "tests/support/catch.h"
#include "tests/support/setting_texts.h"
#include "tests/unit/format/settings/temp_toml.h"

namespace convtrace::settings {
namespace {

LoadedControls load(std::vector<std::string> entries) {
  std::vector<const char*> environment;
  for (const std::string& entry : entries) environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  return load_controls(environment.data());
}

LoadedControls load_file(const std::string& toml, std::vector<std::string> entries = {}) {
  const TempToml file(toml);
  entries.push_back("CONVTRACE_CONFIG=" + file.path());
  return load(std::move(entries));
}

}  // namespace

TEST_CASE("controls: settings and rules come together", "[settings]") {
  const LoadedControls loaded =
      load_file("mode = 'hash'\n[[rule]]\nscope = 'h.*'\ncapture = 'stats'\n");
  CHECK(loaded.problems.empty());
  CHECK(loaded.settings.mode == Mode::kHash);
  CHECK(loaded.rules.size() == 1);
}

TEST_CASE("controls: what means nothing together is a problem", "[settings]") {
  struct Case {
    std::string toml;
    std::vector<std::string> environment;
    std::string says;  // empty: no problem
  };
  const std::string store = "[[rule]]\nscope = 'h.0'\ncapture = 'snapshot'\n";
  const Case cases[] = {
      {"", {"CONVTRACE_MODE=snapshot"}, "set --all (CONVTRACE_ALL=1)"},
      {"\nmode = 'snapshot'\n", {}, ".toml:2: mode snapshot without a rule"},
      {"mode = 'hash'\n", {"CONVTRACE_MODE=snapshot"}, "mode snapshot without a rule"},
      {"", {"CONVTRACE_MODE=snapshot", "CONVTRACE_ALL=1"}, ""},
      {store, {"CONVTRACE_MODE=snapshot"}, ""},
      {"[[rule]]\nscope = 'h'\nsuppress = true\n", {"CONVTRACE_MODE=snapshot"}, "CONVTRACE_ALL=1"},
      {store, {"CONVTRACE_RING=5"}, ":1: values cannot be stored with CONVTRACE_RING"},
      {"", {"CONVTRACE_RING=5", "CONVTRACE_MODE=snapshot", "CONVTRACE_ALL=1"}, "mode snapshot: "},
      {"ring = 5\n[[rule]]\nscope = 'h.0'\ncapture = 'hash'\n", {}, ""},
      {"\n[[rule]]\nscope = 'h.0'\nsteps = 3\n", {}, ":2: the rule says what it is about"},
      {"[[rule]]\nkernel = '*gemm*'\noutputs = [0]\n", {}, ""},
  };
  for (const Case& c : cases) {
    const LoadedControls loaded = load_file(c.toml, c.environment);
    CAPTURE(c.toml, c.says, loaded.problems);
    REQUIRE(loaded.problems.size() == (c.says.empty() ? 0 : 1));
    if (!c.says.empty()) CHECK(loaded.problems[0].find(c.says) != std::string::npos);
  }
}

TEST_CASE("controls: in mode snapshot a rule that only names modules stores them", "[settings]") {
  const LoadedControls loaded = load_file("[[rule]]\nscope = 'h.0'\n", {"CONVTRACE_MODE=snapshot"});
  CHECK(loaded.problems.empty());
  REQUIRE(loaded.rules.size() == 1);
  CHECK(loaded.rules[0].capture == format::Capture::kSnapshot);
  CHECK(mode_without_rule(loaded.settings) == Mode::kStats);
}

TEST_CASE("controls: with a problem anywhere there are no rules", "[settings]") {
  const LoadedControls loaded =
      load_file("[[rule]]\nkernel = 'x'\noutputs = [0]\n", {"CONVTRACE_STEPS=x"});
  CHECK(loaded.problems.size() == 1);
  CHECK(loaded.rules.empty());
}

TEST_CASE("controls: environment over file over default, for each setting", "[settings]") {
  for (const SettingSpec& spec : setting_table()) {
    CAPTURE(spec.name);
    if (spec.name == "CONVTRACE_CONFIG") continue;  // it names the file
    const test::SettingTexts texts = test::texts_of(spec);
    const std::string key = setting_key(spec);
    const std::string file = key + " = '" + std::string(texts.one) + "'\n";
    const std::string variable = std::string(spec.name) + '=' + std::string(texts.other);
    const auto effective = [&](const LoadedControls& loaded) {
      REQUIRE(loaded.problems.empty());
      return spec.print(loaded.settings);
    };
    CHECK(effective(load({})) == spec.default_text);
    CHECK(effective(load_file(file)) == texts.one);
    CHECK(effective(load({variable})) == texts.other);
    CHECK(effective(load_file(file, {variable})) == texts.other);
  }
}

}  // namespace convtrace::settings
