#pragma once
/// @file check.h
/// One line of `convtrace doctor`, and who makes them.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "format/settings/controls.h"

namespace convtrace::tools::doctor {

enum class Level { kOk, kWarn, kFail };

struct Line {
  std::string name;  ///< "cupti": scripts know it by this
  Level level = Level::kOk;
  std::string text;    ///< what was seen; not escaped
  std::string remedy;  ///< what to do; empty where nothing is to be done
};

/// What the user wants to trace, and where.
struct Subject {
  std::vector<std::string> command;  ///< empty: nothing particular
  settings::LoadedControls settings;
  std::string python;                ///< that runs the command, or of PATH
  const nlohmann::json& answer;      ///< what it says of itself (python_answer.h)
  std::filesystem::path cgroups;     ///< "/sys/fs/cgroup"
  std::filesystem::path own_cgroup;  ///< "/proc/self/cgroup"
};

/// Each adds one line or several.
void check_tree(const Subject& subject, std::vector<Line>& lines);
void check_settings(const Subject& subject, std::vector<Line>& lines);
void check_output(const Subject& subject, std::vector<Line>& lines);
void check_limits(const Subject& subject, std::vector<Line>& lines);
void check_driver(const Subject& subject, std::vector<Line>& lines);
void check_other_tools(const Subject& subject, std::vector<Line>& lines);
void check_python(const Subject& subject, std::vector<Line>& lines);
void check_allocator(const Subject& subject, std::vector<Line>& lines);
void check_command(const Subject& subject, std::vector<Line>& lines);

/// @return the value of a variable, empty if there is none.
[[nodiscard]] std::string variable(const char* name);

}  // namespace convtrace::tools::doctor
