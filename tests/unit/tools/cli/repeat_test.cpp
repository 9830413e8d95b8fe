#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

ProcessResult repeat(std::vector<std::string> words, const TempDir& folder) {
  words.insert(words.begin(), {CONVTRACE_PROGRAM, "repeat"});
  return run_process(words, {{}, {}, folder.path()});
}

}  // namespace

TEST_CASE("repeat: what is wrong is found before anything is started", "[cli]") {
  const TempDir folder;
  std::ofstream(folder / "taken") << "";
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, "CT-2002 "},
      {{"--"}, "CT-2002 "},
      {{"-n", "1"}, "not in range"},
      {{"--outptu", "x"}, "--outptu"},
      {{"stray"}, "stray"},
      {{"--output", "."}, "CT-2104 . "},
      {{"--output", "taken"}, "taken"}};
  for (const auto& [options, why] : cases) {
    std::vector<std::string> words = options;
    if (words != std::vector<std::string>{"--"} && !words.empty())
      words.insert(words.end(), {"--", "touch", "started"});
    const ProcessResult result = repeat(words, folder);
    CAPTURE(why);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(result.err.find(why) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder / "started"));
  }
}

TEST_CASE("diff: is convtrace-diff, with its arguments and its exit code", "[cli]") {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--version"},
                                                    {"--help"},
                                                    {"a.ctrace"},
                                                    {"a", "b", "--json", "-"}}) {
    std::vector<std::string> own{CONVTRACE_DIFF_PROGRAM}, by_name{CONVTRACE_PROGRAM, "diff"};
    own.insert(own.end(), arguments.begin(), arguments.end());
    by_name.insert(by_name.end(), arguments.begin(), arguments.end());
    const ProcessResult expected = run_process(own), result = run_process(by_name);
    CHECK(result.exit_code == expected.exit_code);
    CHECK(result.out == expected.out);
    CHECK(result.err == expected.err);
  }
}

TEST_CASE("diff: alone in its tree it fails as if it could not read", "[cli]") {
  const TempDir root;
  std::filesystem::create_directories(root / "bin");
  std::filesystem::copy_file(CONVTRACE_PROGRAM, root / "bin/convtrace");
  CHECK(run_process({root / "bin/convtrace", "diff", "a", "b"}).exit_code == 2);
  CHECK(run_process({root / "bin/convtrace", "repeat", "--", "true"}).exit_code == 2);
}

}  // namespace convtrace::test
