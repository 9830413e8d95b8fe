#include "format/settings/rules.h"

#include "tests/support/catch.h"
#include "tests/unit/format/settings/temp_toml.h"

namespace convtrace::settings {

TEST_CASE("rules: every key arrives in its member", "[settings]") {
  const TempToml file(R"(
mode = "stats"
[[rule]]
kernel = "*my_op*"
scope = "re:^layers\\.[0-9]+$"
steps = "0|10-"
ranks = 3
capture = "snapshot"
outputs = [0, 5]
inputs = [1]
dtype = "bf16"
inplace = true
samples = 16
suppress = true
[[rule]]
kernel = "x"
outputs = "auto"
)");
  const LoadedRules loaded = load_rules(file.path());
  CHECK(loaded.problems.empty());
  REQUIRE(loaded.rules.size() == 2);
  const Rule& rule = loaded.rules[0];
  CHECK(rule.kernel->matches("void my_op<4>()"));
  CHECK(rule.scope->matches("layers.11"));
  CHECK_FALSE(rule.scope->matches("layers.11.mlp"));
  CHECK(rule.steps.steps_text() == "0|10-");
  CHECK(rule.ranks.ranks_text() == "3");
  CHECK(rule.capture == format::Capture::kSnapshot);
  CHECK(rule.outputs == std::vector<uint32_t>{0, 5});
  CHECK_FALSE(rule.outputs_auto);
  CHECK(rule.inputs == std::vector<uint32_t>{1});
  CHECK(rule.dtype == format::DType::kBF16);
  CHECK(rule.inplace);
  CHECK(rule.samples == 16);
  CHECK(rule.suppress);
  CHECK(print(rule) ==
        "kernel *my_op*, scope re:^layers\\.[0-9]+$, steps 0|10-, ranks 3, capture snapshot, "
        "outputs 0 5, inputs 1, dtype bf16, inplace true, samples 16, suppress true");
  CHECK(print(loaded.rules[1]) == "kernel x, outputs auto");

  const Rule& defaults = loaded.rules[1];
  CHECK(defaults.outputs_auto);
  CHECK_FALSE(defaults.scope.has_value());
  CHECK_FALSE(defaults.capture);
  CHECK_FALSE(defaults.samples);
  CHECK(defaults.steps.contains(12345));
  CHECK_FALSE(defaults.inplace);
}

TEST_CASE("rules: a problem names file, line and remedy, and leaves no rules", "[settings]") {
  struct Case {
    std::string_view line, problem;
  };
  const Case cases[] = {
      {"kernal = \"y\"", R"(unknown key "kernal" in a rule; the nearest is kernel)"},
      {"scope = \"re:(\"", R"(scope has the bad pattern "re:(")"},
      {"scope = 3", "scope takes a text"},
      {"steps = \"5-3\"", R"(steps "5-3": character 3 does not fit)"},
      {"steps = true", "steps takes a text"},
      {"capture = \"stat\"", "capture takes hash, stats or snapshot: the nearest is stats"},
      {"outputs = \"all\"", R"(outputs takes "auto" or a list of parameter positions)"},
      {"outputs = [-1]", "outputs takes numbers from 0 to 4096"},
      {"inputs = 2", "inputs takes a list of parameter positions"},
      {"dtype = \"float\"", R"(dtype has the unknown element type "float")"},
      {"inplace = 1", "inplace takes true or false"},
      {"samples = 4097", "samples takes numbers from 0 to 4096"},
  };
  for (const Case& c : cases) {
    const TempToml file("[[rule]]\nkernel = \"x\"\n" + std::string(c.line) + "\n");
    const LoadedRules loaded = load_rules(file.path());
    CAPTURE(c.line);
    CHECK(loaded.rules.empty());
    REQUIRE(loaded.problems.size() == 1);
    CHECK(loaded.problems[0] == file.path() + ":3: " + std::string(c.problem));
  }
}

TEST_CASE("rules: a rule must say what it is about", "[settings]") {
  const TempToml file("\n[[rule]]\nsuppress = true\n");
  const LoadedRules loaded = load_rules(file.path());
  REQUIRE(loaded.problems.size() == 1);
  CHECK(loaded.problems[0] == file.path() + ":2: a rule needs a kernel or a scope pattern");
}

TEST_CASE("rules: rules not written as an array of tables are refused", "[settings]") {
  CHECK(load_rules(TempToml("[rule]\nkernel = \"x\"\n").path()).problems.size() == 1);
  CHECK(load_rules(TempToml("rule = [1]\n").path()).problems.size() == 1);
}

TEST_CASE("rules: a file without rules gives none; a missing file is a problem", "[settings]") {
  const LoadedRules none = load_rules(TempToml("mode = \"off\"\n").path());
  CHECK(none.problems.empty());
  CHECK(none.rules.empty());
  CHECK(load_rules("/nonexistent/rules.toml").problems.size() == 1);
}

TEST_CASE("rules: deeply nested input is refused, not followed", "[settings]") {
  const TempToml file("a = " + std::string(5000, '['));
  CHECK(load_rules(file.path()).problems.size() == 1);
}

}  // namespace convtrace::settings
