#pragma once
/// @file check.h
/// A line of `convtrace doctor`, and the checks that make lines.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "format/settings/controls.h"

namespace convtrace::tools::doctor {

enum class Level { kOk, kWarn, kFail };

struct Line {
  std::string name;  ///< "cupti": the name for scripts
  Level level = Level::kOk;
  std::string text;    ///< the result; not escaped
  std::string remedy;  ///< the proposed action; "" if none is needed
};

/// The program to be traced, and its environment.
struct Subject {
  std::vector<std::string> command;  ///< empty: no particular program
  settings::LoadedControls settings;
  std::string python;                ///< the one that runs the command, or that of PATH
  const nlohmann::json& answer;      ///< facts that it reports about itself (python_answer.h)
  std::filesystem::path cgroups;     ///< "/sys/fs/cgroup"
  std::filesystem::path own_cgroup;  ///< "/proc/self/cgroup"
};

/// Each function adds one line or several.
void check_tree(const Subject& subject, std::vector<Line>& lines);
void check_settings(const Subject& subject, std::vector<Line>& lines);
void check_output(const Subject& subject, std::vector<Line>& lines);
void check_limits(const Subject& subject, std::vector<Line>& lines);
void check_driver(const Subject& subject, std::vector<Line>& lines);
void check_other_tools(const Subject& subject, std::vector<Line>& lines);
void check_python(const Subject& subject, std::vector<Line>& lines);
void check_allocator(const Subject& subject, std::vector<Line>& lines);
void check_command(const Subject& subject, std::vector<Line>& lines);

/// @return the value of an environment variable; "" if it is not set.
[[nodiscard]] std::string variable(const char* name);

}  // namespace convtrace::tools::doctor
