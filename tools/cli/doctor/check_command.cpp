#include <filesystem>

#include "tools/cli/base/program.h"
#include "tools/cli/doctor/check.h"
#include "tools/common/child.h"

namespace convtrace::tools::doctor {
namespace {

using Words = std::vector<std::string>;

/// @return the script that a Python runs; empty if it runs none, or if that is not known.
std::string script_of(const Words& command) {
  if (!std::filesystem::path(command.front()).filename().string().starts_with("python")) return "";
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (!word.starts_with("-")) return word;
    if (word.starts_with("-c") || word.starts_with("-m") || word == "-") return "";
    if (word == "-W" || word == "-X") ++i;
  }
  return "";
}

}  // namespace

void check_command(const Subject& subject, std::vector<Line>& lines) {
  if (subject.command.empty()) return;
  const std::string& word = subject.command.front();
  const std::filesystem::path path = find_program(word);
  if (path.empty()) {
    lines.push_back({"command", Level::kFail,
                     word + ": there is no such program, or it is not executable",
                     "check the name and PATH; a script: `python SCRIPT`, or chmod +x"});
    return;
  }
  const std::string why = preload_obstacle(path);
  lines.push_back({"command", why.empty() ? Level::kOk : Level::kFail,
                   path.string() + (why.empty() ? " can be traced" : " " + why),
                   why.empty() ? "" : "trace the program that it starts, or one built for glibc"});
  const std::string clearing = clearing_option(subject.command);
  if (!clearing.empty()) {
    lines.push_back({"command", Level::kFail,
                     "env " + clearing + " takes LD_PRELOAD from what it starts",
                     "put `convtrace run --` behind the options of env"});
  }
  std::error_code error;
  const std::string script = script_of(subject.command);
  if (!script.empty() && !std::filesystem::exists(script, error)) {
    lines.push_back({"command", Level::kFail, script + ": there is no such script",
                     "check its name and the folder you are in"});
  }
}

}  // namespace convtrace::tools::doctor
