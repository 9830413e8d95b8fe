#include <sstream>

#include "format/settings/rules.h"
#include "format/settings/settings.h"
#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What bash offers behind these words; the last one is the one being typed.
std::string completed(const std::vector<std::string>& words) {
  std::string typed;
  for (const std::string& word : words) typed += '\'' + word + "' ";
  const ProcessResult result = run_process(
      {"bash", "-c",
       "eval \"$(" CONVTRACE_PROGRAM " --generate bash)\"; COMP_WORDS=(convtrace " + typed +
           "); COMP_CWORD=" + std::to_string(words.size()) + "; _convtrace; echo ${COMPREPLY[*]}"});
  REQUIRE(result.exit_code == 0);
  return result.out;
}

}  // namespace

TEST_CASE("reference: docs/settings.md is the table that parses settings", "[cli]") {
  const std::string page = convtrace({"--generate", "settings"}).out;
  CHECK(page == read(CONVTRACE_SOURCE_DIR "/docs/settings.md"));
  for (const settings::SettingSpec& spec : settings::setting_table())
    CHECK(page.find("| `" + std::string(spec.name) + "` | `--") != std::string::npos);
  for (const settings::RuleKeySpec& key : settings::rule_keys())
    CHECK(page.find("| `" + std::string(key.name) + "` | `") != std::string::npos);
}

TEST_CASE("reference: the manual page has every command, option and setting", "[cli]") {
  const std::string page = convtrace({"--generate", "man"}).out;
  CHECK(page.starts_with(".TH CONVTRACE 1\n.SH NAME\nconvtrace \\- what a training run"));
  for (const char* text :
       {".SS run", ".SS repeat", ".SS diff", ".SS doctor", ".SS config", "\\-\\-max\\-bytes",
        "CONVTRACE_MODE=off", "suppress = true", ".SH EXIT STATUS"})
    CHECK(page.find(text) != std::string::npos);
  CHECK(page.find("\n.\n") == std::string::npos);
}

TEST_CASE("reference: the shell completes commands, options, choices and files", "[cli]") {
  CHECK(completed({"ver"}) == "verify\n");
  CHECK(completed({"repeat", "--o"}) == "--output\n");
  CHECK((" " + completed({"repeat", "--", "unam"})).find(" uname") != std::string::npos);
  CHECK(completed({"run", "--max"}) == "--max-bytes\n");
  CHECK(completed({"run", "--mode", "s"}) == "stats snapshot\n");
  CHECK(completed({"run", "--mode", "=", "s"}) == "stats snapshot\n");  // as bash splits it
  CHECK(completed({"run", "--mode", "="}).find("launches") != std::string::npos);
  CHECK(completed({"export", "--format", "p"}) == "parquet perfetto\n");
  CHECK(completed({"info", "/etc/host"}).find("/etc/hosts") != std::string::npos);
  CHECK((' ' + completed({"run", "--", "unam"})).find(" uname") != std::string::npos);
  CHECK(completed({"run", "--", "/etc/hos"}).find("/etc/hosts") != std::string::npos);
  CHECK(completed({"run", "--", "python", "/etc/hos"}).find("/etc/hosts") != std::string::npos);
  CHECK(completed({"run", "--", "uname", "--mo"}) == "\n");  // the program's own
}

TEST_CASE("help: examples stand before the list of options, and lines fit a terminal", "[cli]") {
  for (const std::string command :
       {"run", "demo", "path", "env", "info", "show", "findings", "recover", "strip", "verify",
        "check", "weights", "origin", "repeat", "diff", "expect", "export", "doctor", "config"}) {
    CAPTURE(command);
    const std::string help = command == "diff"
                                 ? run_process({CONVTRACE_PROGRAM "-diff", "--help"}).out
                                 : convtrace({command, "--help"}).out;
    CHECK(help.find("\nExample") < help.find("Options:"));
    std::istringstream lines(help);
    size_t before = 0;
    bool listed = false;
    for (std::string line; std::getline(lines, line);) {
      listed = listed || line == "Positionals:" || line == "Options:";
      before += listed ? 0 : 1;
      CAPTURE(line);
      CHECK(line.size() <= 80);
    }
    CHECK(before <= 25);
  }
}

TEST_CASE("reference: nothing else is generated", "[cli]") {
  CHECK(convtrace({"--generate", "poem"}).exit_code == 2);
}

}  // namespace convtrace::test
