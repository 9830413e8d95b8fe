#include "tools/convtrace/doctor/check.h"
#include "tools/convtrace/program.h"

namespace convtrace::tools::doctor {

void check_command(const Subject& subject, std::vector<Line>& lines) {
  if (subject.command.empty()) return;
  const std::string& word = subject.command.front();
  const std::filesystem::path path = find_program(word);
  if (path.empty()) {
    lines.push_back(
        {"command", Level::kFail, word + ": there is no such program", "check the name and PATH"});
    return;
  }
  const std::string why = preload_obstacle(path);
  lines.push_back({"command", why.empty() ? Level::kOk : Level::kFail,
                   path.string() + (why.empty() ? " can be traced" : " " + why),
                   why.empty() ? "" : "trace the program that it starts, or one built for glibc"});
}

}  // namespace convtrace::tools::doctor
