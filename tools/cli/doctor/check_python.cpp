#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/cli/base/program.h"
#include "tools/cli/doctor/check.h"

namespace convtrace::tools::doctor {
namespace {

/// The options of the command's Python that keep it from loading the observer.
std::string hiding_option(const std::vector<std::string>& python) {
  for (size_t i = 1; i < python.size() && python[i].starts_with("-"); ++i) {
    if (python[i] == "-c" || python[i] == "-m" || python[i].starts_with("--")) break;
    if (python[i].find_first_of("IES") != std::string::npos) return python[i];
  }
  return "";
}

/// A program without PyTorch may still launch kernels, where there is a driver.
void check_no_torch(const Subject& subject, std::vector<Line>& lines) {
  if (python_part(subject.command).empty()) {
    lines.push_back(
        {"torch", Level::kWarn, "this Python has no PyTorch",
         "modules and steps are seen in PyTorch programs; name yours: doctor -- python train.py"});
    return;
  }
  const bool driver = std::ranges::any_of(
      lines, [](const Line& line) { return line.name == "driver" && line.level == Level::kOk; });
  lines.push_back({"torch", driver ? Level::kWarn : Level::kFail,
                   subject.python + ", which runs the command, has no PyTorch" +
                       (driver ? ": kernels are traced, modules and steps are not"
                               : ", and without a CUDA driver nothing else is traced"),
                   "activate the environment that has PyTorch, or name its python"});
}

void check_torch(const Subject& subject, std::vector<Line>& lines) {
  const nlohmann::json& said = subject.answer;
  if (!said.contains("torch") || !said["torch"].is_string()) return check_no_torch(subject, lines);
  const std::string version = said["torch"];
  int major = 0, minor = 0;
  std::sscanf(version.c_str(), "%d.%d", &major, &minor);
  const bool full = major > 2 || (major == 2 && minor >= 1);
  lines.push_back(
      {"torch", full ? Level::kOk : Level::kWarn, "PyTorch " + version,
       full ? "" : "before 2.1 output aliasing is not found, the rest works from 1.13 on"});
  const bool hooks = said.contains("hooks") && said["hooks"].size() >= 2;
  lines.push_back(
      {"memory-hook", hooks ? Level::kOk : Level::kWarn,
       hooks
           ? "its allocator reports to convtrace"
           : "libc10.so has no memory hook: " + said.value("trouble", std::string("not exported")),
       hooks ? "" : "blocks of PyTorch's allocator are not told apart; statistics work"});
}

void check_cpu_memory(settings::CpuAlloc setting, std::vector<Line>& lines) {
  const bool off = setting == settings::CpuAlloc::kOff;
  const char* const until =
      setting == settings::CpuAlloc::kAuto ? " until the program makes a CUDA context" : "";
  lines.push_back({"cpu-memory", off ? Level::kWarn : Level::kOk,
                   off ? "memory of CPU tensors is not watched (CONVTRACE_CPU_ALLOC=off)"
                       : std::string("memory of CPU tensors is watched") + until,
                   off ? "leave the setting out where uses of freed memory are looked for" : ""});
}

}  // namespace

void check_python(const Subject& subject, std::vector<Line>& lines) {
  const nlohmann::json& said = subject.answer;
  if (!said.is_object()) {
    lines.push_back({"python", Level::kWarn, subject.python + " does not run",
                     "kernels of other programs are traced"});
    return;
  }
  const std::string version =
      std::to_string(int{said["python"][0]}) + "." + std::to_string(int{said["python"][1]});
  const bool old = said["python"] < nlohmann::json::array({3, 8});
  lines.push_back({"python", old ? Level::kFail : Level::kOk,
                   subject.python + " is Python " + version,
                   old ? "modules and steps are seen from Python 3.8 on" : ""});
  const std::string hiding = hiding_option(python_part(subject.command));
  if (!hiding.empty()) {
    lines.push_back({"python-options", Level::kWarn,
                     "the option " + hiding + " keeps site packages or PYTHONPATH out",
                     "leave it out where the trace lacks modules"});
  }
  check_torch(subject, lines);
}

void check_allocator(const Subject& subject, std::vector<Line>& lines) {
  check_cpu_memory(subject.settings.settings.cpu_alloc, lines);
  const std::string conf = variable("PYTORCH_ALLOC_CONF");
  const std::string older = variable("PYTORCH_CUDA_ALLOC_CONF");
  if (!conf.empty() && !older.empty() && conf != older) {
    lines.push_back({"allocator", Level::kWarn,
                     "PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF say different things",
                     "PyTorch reads one of them, which depends on its version: keep one"});
    return;
  }
  const std::string& said = conf.empty() ? older : conf;
  if (variable("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1" &&
      !subject.settings.settings.strict_alloc) {
    lines.push_back({"allocator", Level::kWarn,
                     "PYTORCH_NO_CUDA_MEMORY_CACHING=1: every tensor costs a call of the driver",
                     "unset it, but for finding a stale pointer (CONVTRACE_STRICT_ALLOC)"});
  } else if (said.find("cudaMallocAsync") != std::string::npos) {
    lines.push_back({"allocator", Level::kOk, "cudaMallocAsync: blocks are the driver's", ""});
  } else {
    lines.push_back({"allocator", Level::kOk,
                     "PyTorch's caching allocator" + (said.empty() ? "" : " with " + said), ""});
  }
}

}  // namespace convtrace::tools::doctor
