#include "format/settings/settings.h"

#include "tests/support/catch.h"
#include "tests/unit/format/settings/temp_toml.h"

namespace convtrace::settings {
namespace {

LoadedSettings load(std::initializer_list<std::string> entries) {
  std::vector<const char*> environment;
  for (const std::string& entry : entries) environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  return load_from_environment(environment.data());
}

}  // namespace

TEST_CASE("settings: an environment without them gives the defaults", "[settings]") {
  const LoadedSettings loaded = load({"PATH=/bin", "CONVTRACER=1", "XCONVTRACE_MODE=x"});
  CHECK(loaded.problems.empty());
  for (const SettingSpec& spec : setting_table()) {
    CAPTURE(spec.name);
    CHECK(spec.print(loaded.settings) == spec.default_text);
  }
}

TEST_CASE("settings: printing and parsing are inverse for every row", "[settings]") {
  struct Case {
    std::string_view name, text;
  };
  const Case cases[] = {
      {"CONVTRACE", "0"},
      {"CONVTRACE_OUTPUT", "/t/%h-%p"},
      {"CONVTRACE_OVERWRITE", "1"},
      {"CONVTRACE_CONFIG", "c.toml"},
      {"CONVTRACE_MODE", "launches"},
      {"CONVTRACE_ALL", "1"},
      {"CONVTRACE_STEPS", "0|5-8|100-120,every=50"},
      {"CONVTRACE_OVERHEAD", "2.5%"},
      {"CONVTRACE_RANKS", "0-3,7"},
      {"CONVTRACE_INCLUDE", "*gemm*;re:^x"},
      {"CONVTRACE_EXCLUDE", "*copy*"},
      {"CONVTRACE_ALL_KERNELS", "1"},
      {"CONVTRACE_OPS", "h.3*;re:head$"},
      {"CONVTRACE_COMPILED", "all"},
      {"CONVTRACE_OPTIMIZER_STATE", "1"},
      {"CONVTRACE_MAX_BYTES", "20G"},
      {"CONVTRACE_RING", "50,nan,USR2"},
      {"CONVTRACE_SPIKE", "4.5,100"},
      {"CONVTRACE_SAMPLES", "0"},
      {"CONVTRACE_SNAPSHOT_MEMORY", "1G"},
      {"CONVTRACE_SNAPSHOT_FULL", "block"},
      {"CONVTRACE_CPU_ALLOC", "off"},
      {"CONVTRACE_STACKS", "all"},
      {"CONVTRACE_CUPTI", "/c/libcupti.so.13"},
      {"CONVTRACE_POISON", "1"},
      {"CONVTRACE_QUARANTINE", "1"},
      {"CONVTRACE_STRICT_ALLOC", "1"},
      {"CONVTRACE_ENVIRONMENT", "0"},
      {"CONVTRACE_SOURCE", "1"},
      {"CONVTRACE_LOG", "debug"},
      {"CONVTRACE_LOG_FILE", "log.txt"},
  };
  CHECK(std::size(cases) == setting_table().size());
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const SettingSpec* spec = find_setting(c.name);
    REQUIRE(spec != nullptr);
    Settings settings;
    CHECK(set_value(*spec, c.name, c.text, settings).empty());
    CHECK(spec->print(settings) == c.text);
    CHECK(spec->print(Settings{}) != c.text);
  }
}

TEST_CASE("settings: sizes take binary suffixes and never overflow", "[settings]") {
  struct Case {
    std::string_view text;
    uint64_t bytes;  // 0: refused
  };
  const Case cases[] = {{"1", 1},
                        {"1K", 1024},
                        {"20G", 20ull << 30},
                        {"3T", 3ull << 40},
                        {"18446744073709551615", ~0ull},
                        {"0", 0},
                        {"G", 0},
                        {"-1", 0},
                        {"1.5G", 0},
                        {"1g", 0},
                        {"1GB", 0},
                        {"16777216T", 0},
                        {"18446744073709551616", 0}};
  const SettingSpec& spec = *find_setting("CONVTRACE_MAX_BYTES");
  for (const Case& c : cases) {
    CAPTURE(c.text);
    Settings settings;
    CHECK(set_value(spec, spec.name, c.text, settings).empty() == (c.bytes != 0));
    CHECK(settings.max_bytes == c.bytes);
  }
}

TEST_CASE("settings: a bad value is one line with value, setting and what may be written",
          "[settings]") {
  struct Case {
    std::string entry, problem;
  };
  const Case cases[] = {
      {"CONVTRACE_MODE=stat",
       R"(bad value "stat" for CONVTRACE_MODE: the nearest is stats; write off|launches|hash|stats|snapshot)"},
      {"CONVTRACE_STEPS=5-3",
       R"(bad value "5-3" for CONVTRACE_STEPS: character 3 does not fit; write 0|5-8|100-120,every=50|all)"},
      {"CONVTRACE_OVERHEAD=5 %",
       R"(bad value "5 %" for CONVTRACE_OVERHEAD: it takes a number above 0; write PERCENT|5%)"},
      {"CONVTRACE_OVERHEAD=0",
       R"(bad value "0" for CONVTRACE_OVERHEAD: it takes a number above 0; write PERCENT|5%)"},
      {"CONVTRACE=off", R"(bad value "off" for CONVTRACE: it is a switch; write 0|1)"},
      {"CONVTRACE_SAMPLES=5000",
       R"(bad value "5000" for CONVTRACE_SAMPLES: the most is 4096; write 0..4096)"},
      {"CONVTRACE_INCLUDE=a;re:(",
       R"(bad value "a;re:(" for CONVTRACE_INCLUDE: bad pattern at character 3; write PATTERN[;PATTERN...])"},
      {"CONVTRACE_OUTPUT=%q.ctrace",
       R"(bad value "%q.ctrace" for CONVTRACE_OUTPUT: % stands before h (host), p (process), r (rank) or %; write PATTERN)"},
      {"CONVTRACE_MAX_BYTES=5X",
       R"(bad value "5X" for CONVTRACE_MAX_BYTES: its unit is none of K M G T; write BYTES|20G|auto)"},
      {"CONVTRACE_SPIKE=-1",
       R"(bad value "-1" for CONVTRACE_SPIKE: it takes one or two positive numbers, with a comma between; write SIGMA[,ABSOLUTE])"},
      {"CONVTRACE_RING=9,nann",
       R"(bad value "9,nann" for CONVTRACE_RING: the nearest is nan; write N[,nan,alias,signal,USR2,spike])"},
  };
  for (const Case& c : cases) {
    const LoadedSettings loaded = load({c.entry});
    REQUIRE(loaded.problems.size() == 1);
    CHECK(loaded.problems[0] == c.problem);
  }
}

TEST_CASE("settings: an unknown CONVTRACE_ name is one line with the nearest name", "[settings]") {
  const LoadedSettings loaded = load({"CONVTRACE_STEP=3", "CONVTRACE_CORE=/x", "CONVTRACE_=1"});
  REQUIRE(loaded.problems.size() == 2);
  CHECK(loaded.problems[0] ==
        R"(unknown setting "CONVTRACE_STEP"; the nearest is CONVTRACE_STEPS)");
}

TEST_CASE("settings: an empty value is as good as none", "[settings]") {
  const LoadedSettings loaded = load({"CONVTRACE_STEPS=", "CONVTRACE_MODE=", "CONVTRACE="});
  CHECK(loaded.problems.empty());
  CHECK(loaded.settings.mode == Mode::kStats);
  CHECK(loaded.settings.enabled);
}

TEST_CASE("settings: of a variable written twice the first counts", "[settings]") {
  CHECK(load({"CONVTRACE_MODE=hash", "CONVTRACE_MODE=off"}).settings.mode == Mode::kHash);
}

TEST_CASE("settings: the environment wins over the file, the file over the default", "[settings]") {
  const TempToml file("mode = \"hash\"\nsamples = 3\npoison = true\n[[rule]]\nkernel = \"*\"\n");
  const LoadedSettings loaded =
      load({"CONVTRACE_MODE=launches", "CONVTRACE_CONFIG=" + file.path()});
  CHECK(loaded.problems.empty());
  CHECK(loaded.settings.mode == Mode::kLaunches);
  CHECK(loaded.settings.samples == 3);
  CHECK(loaded.settings.poison);
  CHECK(loaded.settings.config == file.path());
}

TEST_CASE("settings: problems of the file name file, line and the nearest key", "[settings]") {
  const TempToml file("mod = \"hash\"\nsamples = 1.5\nstrict_alloc = 2\n");
  const LoadedSettings loaded = load({"CONVTRACE_CONFIG=" + file.path()});
  REQUIRE(loaded.problems.size() == 3);
  CHECK(loaded.problems[0] == file.path() + ":1: unknown key \"mod\"; the nearest is mode");
  CHECK(loaded.problems[1] == file.path() + ":2: \"samples\" takes a text or a number: 0..4096");
  CHECK(loaded.problems[2] == file.path() +
                                  ":3: bad value \"2\" for strict_alloc: it is a switch; "
                                  "write 0|1");
}

TEST_CASE("settings: a missing or broken file is a problem", "[settings]") {
  CHECK(load({"CONVTRACE_CONFIG=/nonexistent/c.toml"}).problems.size() == 1);
  for (const std::string_view text :
       {"mode = \n", "all = tr\nue", "[[=", "a[[=", "[[x.", "[=]", "a = \"5\"\uFD7F\nb"}) {
    CAPTURE(text);
    const TempToml file(text);
    const LoadedSettings loaded = load({"CONVTRACE_CONFIG=" + file.path()});
    REQUIRE(loaded.problems.size() == 1);
    CHECK(loaded.problems[0].starts_with(file.path() + ":1: "));
    CHECK(loaded.problems[0].find('\n') == std::string::npos);
  }
}

}  // namespace convtrace::settings
