#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/program.h"
#include "tools/cli/doctor/check.h"
#include "tools/common/child.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"

namespace convtrace::tools {
namespace doctor {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

namespace {

constexpr std::chrono::milliseconds kPatience{20'000};

/// Does not import PyTorch, which takes seconds and may need a GPU.
constexpr const char* kQuestion = R"(
import ctypes, glob, json, os, sys
said = {"python": list(sys.version_info[:2]), "torch": None, "hooks": [], "cupti": []}
try:
    import importlib.metadata as metadata, importlib.util as util
    spec = util.find_spec("torch")
    if spec:
        said["torch"] = metadata.version("torch")
        home = os.path.dirname(spec.origin)
        for folder in (os.path.join(home, "..", "nvidia", "*", "lib"), os.path.join(sys.prefix, "lib")):
            said["cupti"] += sorted(map(os.path.realpath, glob.glob(os.path.join(folder, "libcupti.so.1[23]"))))
        library = ctypes.CDLL(os.path.join(home, "lib", "libc10.so"))
        names = ("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
                 "_ZN3c1022memoryProfilingEnabledEv")
        said["hooks"] = [name for name in names if hasattr(library, name)]
except Exception as error:
    said["trouble"] = str(error)
print(json.dumps(said))
)";

/// Asks a Python for facts about itself, with one child process for all checks that need them.
/// @return null for a Python that does not run, or whose answer is invalid; else an object:
///   python   [major, minor]
///   torch    version, or null
///   hooks    names of the memory hooks that its libc10.so exports
///   cupti    paths of libcupti that its packages bring
///   trouble  what went wrong when looking, if anything did
nlohmann::json python_answer(const std::string& python) {
  const auto text = answer_of({python, "-c", kQuestion}, kPatience);
  nlohmann::json said = nlohmann::json::parse(text.value_or(""), nullptr, false);
  const bool sound = said.is_object() && said.contains("python") && said["python"].is_array() &&
                     said["python"].size() == 2 && said["python"][0].is_number_integer() &&
                     said["python"][1].is_number_integer();
  return sound ? said : nlohmann::json();
}

const char* level_name(Level level) {
  switch (level) {
    case Level::kOk: return "ok";
    case Level::kWarn: return "warn";
    case Level::kFail: break;
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

Json line_json(const Line& line) {
  return {{"name", line.name},
          {"level", level_name(line.level)},
          {"text", line.text},
          {"remedy", text_or_null(line.remedy)}};
}

}  // namespace
}  // namespace doctor

namespace {

struct DoctorOptions {
  bool json = false;
};

/// @param words  the command to be traced; may be empty.
/// @return kFailure if something will not work; no problem makes the command itself fail.
ExitCode run_doctor(const DoctorOptions& options, const std::vector<std::string>& words) {
  using doctor::Level;
  const std::vector<std::string> command = python_part(words);
  const std::string python = command.empty() ? "python3" : command.front();
  const nlohmann::json answer = doctor::python_answer(python);
  const doctor::Subject subject{words,
                                settings::load_controls(environ),
                                python,
                                answer,
                                "/sys/fs/cgroup",
                                "/proc/self/cgroup"};
  const auto lines = doctor::examine(subject);
  const auto count = [&](Level level) {
    return std::ranges::count_if(lines, [&](const auto& line) { return line.level == level; });
  };
  const auto failures = count(Level::kFail), warnings = count(Level::kWarn);
  Output output;
  if (options.json) {
    Json json;
    json["checks"] = json_list(lines, doctor::line_json);
    json["failures"] = failures;
    json["warnings"] = warnings;
    output.line(dump_json(json));
  } else {
    for (const auto& line : lines) doctor::print(output, line);
  }
  return output.finish(failures == 0 ? ExitCode::kClean : ExitCode::kFailure);
}

}  // namespace

void add_doctor(Commands& commands) {
  auto [command, options] = commands.add<DoctorOptions>(
      "doctor", "Say whether tracing will work here: doctor [-- CMD]",
      [&commands](const DoctorOptions& given) { return run_doctor(given, commands.words()); });
  command.add_flag("--json", options.json, "One JSON object");
  command.footer("Exit code: 0, or 1 if something will not work.");
}

}  // namespace convtrace::tools
