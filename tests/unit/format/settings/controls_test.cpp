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
      {"[[rule]]\nscope = 'h'\nsuppress = false\n", {}, "nothing else"},
      {"[[rule]]\nkernel = 'k'\nsamples = 4\n", {}, "nothing else"},
      {"[[rule]]\nkernel = 'k'\ndtype = 'f32'\n", {}, "nothing else"},
      {"[[rule]]\nscope = 'h'\nsamples = 4\n", {}, ""},
      {"", {"CONVTRACE_INCLUDE=;"}, "there is no pattern in it"},
  };
  for (const Case& c : cases) {
    const LoadedControls loaded = load_file(c.toml, c.environment);
    CAPTURE(c.toml, c.says, loaded.problems);
    REQUIRE(loaded.problems.size() == (c.says.empty() ? 0 : 1));
    if (!c.says.empty()) CHECK(loaded.problems[0].find(c.says) != std::string::npos);
  }
}

TEST_CASE("controls: what is good and has no effect is a warning", "[settings]") {
  struct Case {
    std::string toml;
    std::vector<std::string> environment;
    std::string says;  // empty: no warning
  };
  const std::string store = "[[rule]]\nscope = 'h.0'\ncapture = 'snapshot'\n";
  const Case cases[] = {
      {"", {"CONVTRACE_ALL=1"}, "CONVTRACE_ALL has no effect: it is for mode snapshot"},
      {"\nall = true\n", {"CONVTRACE_MODE=hash"}, ".toml:2: CONVTRACE_ALL has no effect"},
      {"", {"CONVTRACE_ALL=0"}, ""},
      {"", {"CONVTRACE_ALL_KERNELS=1", "CONVTRACE_MODE=launches"}, "mode launches takes no values"},
      {"", {"CONVTRACE_ALL_KERNELS=1", "CONVTRACE_MODE=hash"}, ""},
      {"", {"CONVTRACE_OPS=h", "CONVTRACE_MODE=launches"}, "CONVTRACE_OPS has no effect"},
      {"", {"CONVTRACE_OPTIMIZER_STATE=1", "CONVTRACE_MODE=launches"}, "takes no values"},
      {"", {"CONVTRACE_SPIKE=3"}, "CONVTRACE_SPIKE has no effect: it is a trigger"},
      {"", {"CONVTRACE_SPIKE=3", "CONVTRACE_RING=2,nan"}, "CONVTRACE_SPIKE has no effect"},
      {"", {"CONVTRACE_SPIKE=3", "CONVTRACE_RING=2"}, ""},
      {"",
       {"CONVTRACE_RING=2,nan", "CONVTRACE_MODE=hash"},
       "CONVTRACE_RING has no effect in part: its triggers nan and spike see statistics"},
      {"", {"CONVTRACE_RING=2,alias,signal", "CONVTRACE_MODE=hash"}, ""},
      {"", {"CONVTRACE_RING=2,nan"}, ""},
      {"", {"CONVTRACE_SNAPSHOT_FULL=drop"}, "nothing is stored"},
      {"", {"CONVTRACE_SNAPSHOT_MEMORY=1G"}, "nothing is stored"},
      {store, {"CONVTRACE_SNAPSHOT_MEMORY=1G", "CONVTRACE_SNAPSHOT_FULL=drop"}, ""},
      {"", {"CONVTRACE_ALL=1", "CONVTRACE_MODE=off"}, ""},
  };
  for (const Case& c : cases) {
    const LoadedControls loaded = load_file(c.toml, c.environment);
    CAPTURE(c.toml, c.environment, loaded.warnings, loaded.problems);
    CHECK(loaded.problems.empty());
    REQUIRE(loaded.warnings.size() == (c.says.empty() ? 0 : 1));
    if (!c.says.empty()) CHECK(loaded.warnings[0].find(c.says) != std::string::npos);
  }
}

TEST_CASE("controls: a kernel's rule that only captures takes all that the kernel writes",
          "[settings]") {
  const LoadedControls loaded = load_file(
      "[[rule]]\nkernel = 'a'\ncapture = 'hash'\n"
      "[[rule]]\nkernel = 'b'\ncapture = 'hash'\ninputs = [1]\n"
      "[[rule]]\nkernel = 'c'\nsuppress = true\n"
      "[[rule]]\nscope = 'd'\ncapture = 'hash'\n");
  REQUIRE(loaded.rules.size() == 4);
  CHECK(loaded.rules[0].outputs_auto);
  for (const size_t i : {1u, 2u, 3u}) CHECK_FALSE(loaded.rules[i].outputs_auto);
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
