#include "tools/cli/doctor/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/cli/base/output.h"
#include "tools/cli/base/program.h"
#include "tools/cli/doctor/check.h"
#include "tools/cli/doctor/python_answer.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"

namespace convtrace::tools {
namespace doctor {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

namespace {

const char* level_name(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarn:
      return "warn";
    case Level::kFail:
      break;
  }
  return "fail";
}

std::vector<Line> examine(const Subject& subject) {
  std::vector<Line> lines;
  for (const auto check : {check_tree, check_settings, check_output, check_limits, check_driver,
                           check_other_tools, check_python, check_allocator, check_command})
    check(subject, lines);
  return lines;
}

void print(Output& output, const Line& line) {
  const std::string level = level_name(line.level);
  output.line(level + std::string(6 - level.size(), ' ') + line.name + ": " +
              escape_text(line.text));
  if (!line.remedy.empty()) output.line("      -> " + escape_text(line.remedy));
}

Json to_json(const std::vector<Line>& lines) {
  Json list = Json::array();
  for (const Line& line : lines) {
    Json one;
    one["name"] = line.name;
    one["level"] = level_name(line.level);
    one["text"] = line.text;
    one["remedy"] = line.remedy.empty() ? Json() : Json(line.remedy);
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace
}  // namespace doctor

ExitCode run_doctor(const DoctorOptions& options) {
  using doctor::Level;
  const std::vector<std::string> command = python_part(options.command);
  const std::string python = command.empty() ? "python3" : command.front();
  const nlohmann::json answer = doctor::python_answer(python);
  const doctor::Subject subject{options.command,  settings::load_controls(environ),
                                python,           answer,
                                "/sys/fs/cgroup", "/proc/self/cgroup"};
  const auto lines = doctor::examine(subject);
  const auto count = [&](Level level) {
    return std::ranges::count_if(lines, [&](const auto& line) { return line.level == level; });
  };
  const auto failures = count(Level::kFail), warnings = count(Level::kWarn);
  Output output;
  if (options.json) {
    Json json;
    json["checks"] = doctor::to_json(lines);
    json["failures"] = failures;
    json["warnings"] = warnings;
    output.line(dump_json(json));
  } else {
    for (const auto& line : lines) doctor::print(output, line);
  }
  return output.finish(failures == 0 ? ExitCode::kClean : ExitCode::kFailure);
}

}  // namespace convtrace::tools
