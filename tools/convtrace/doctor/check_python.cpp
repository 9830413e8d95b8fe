#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/convtrace/doctor/check.h"
#include "tools/convtrace/doctor/child.h"

namespace convtrace::tools::doctor {
namespace {

constexpr std::chrono::milliseconds kPatience{20'000};

/// Says what this Python has, without importing PyTorch: that takes seconds, and a GPU.
constexpr const char* kQuestion = R"(
import ctypes, json, os, sys
said = {"python": list(sys.version_info[:2]), "torch": None, "hooks": [], "flags": [sys.flags.isolated, sys.flags.no_site]}
try:
    import importlib.metadata as metadata, importlib.util as util
    spec = util.find_spec("torch")
    if spec:
        said["torch"] = metadata.version("torch")
        c10 = os.path.join(os.path.dirname(spec.origin), "lib", "libc10.so")
        library = ctypes.CDLL(c10)
        names = ("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
                 "_ZN3c1022memoryProfilingEnabledEv")
        said["hooks"] = [name for name in names if hasattr(library, name)]
except Exception as error:
    said["trouble"] = str(error)
print(json.dumps(said))
)";

bool is_python(const std::string& word) {
  return std::filesystem::path(word).filename().string().starts_with("python");
}

/// The Python that the command starts; that of the PATH if it is not to be seen.
std::string python_of(const std::vector<std::string>& command) {
  const auto found = std::ranges::find_if(command, is_python);
  return found == command.end() ? "python3" : *found;
}

/// Options of the Python in the command that keep the observer out.
std::string hiding_options(const std::vector<std::string>& command) {
  auto word = std::ranges::find_if(command, is_python);
  if (word == command.end()) return "";
  for (++word; word != command.end() && word->starts_with("-"); ++word) {
    if (*word == "-c" || *word == "-m" || word->starts_with("--")) break;
    if (word->find_first_of("IES") != std::string::npos) return *word;
  }
  return "";
}

void check_torch(const nlohmann::json& said, std::vector<Line>& lines) {
  if (said.value("torch", nlohmann::json()).is_null()) {
    lines.push_back(
        {"torch", Level::kWarn, "this Python has no PyTorch",
         "modules and steps are seen in PyTorch programs; name yours: doctor -- python train.py"});
    return;
  }
  const std::string version = said["torch"];
  int major = 0, minor = 0;
  std::sscanf(version.c_str(), "%d.%d", &major, &minor);
  const bool full = major > 2 || (major == 2 && minor >= 1);
  lines.push_back(
      {"torch", full ? Level::kOk : Level::kWarn, "PyTorch " + version,
       full ? "" : "before 2.1 output aliasing is not found, the rest works from 1.13 on"});
  const size_t hooks = said["hooks"].size();
  lines.push_back(
      {"memory-hook", hooks >= 2 ? Level::kOk : Level::kWarn,
       hooks >= 2
           ? "its allocator reports to convtrace"
           : "libc10.so has no memory hook: " + said.value("trouble", std::string("not exported")),
       hooks >= 2 ? "" : "blocks of PyTorch's allocator are not told apart; statistics work"});
}

}  // namespace

void check_python(const Subject& subject, std::vector<Line>& lines) {
  const std::string python = python_of(subject.command);
  const auto answer = answer_of({python, "-c", kQuestion}, kPatience);
  const auto said = nlohmann::json::parse(answer.value_or(""), nullptr, false);
  if (!said.is_object()) {
    lines.push_back(
        {"python", Level::kWarn, python + " does not run", "kernels of other programs are traced"});
    return;
  }
  const std::string version =
      std::to_string(int{said["python"][0]}) + "." + std::to_string(int{said["python"][1]});
  const bool old = said["python"] < nlohmann::json::array({3, 8});
  lines.push_back({"python", old ? Level::kFail : Level::kOk, python + " is Python " + version,
                   old ? "modules and steps are seen from Python 3.8 on" : ""});
  const std::string hiding = hiding_options(subject.command);
  if (!hiding.empty()) {
    lines.push_back({"python-options", Level::kWarn,
                     "the option " + hiding + " keeps site packages or PYTHONPATH out",
                     "leave it out where the trace lacks modules"});
  }
  check_torch(said, lines);
}

void check_allocator(const Subject&, std::vector<Line>& lines) {
  const std::string conf = variable("PYTORCH_CUDA_ALLOC_CONF") + variable("PYTORCH_ALLOC_CONF");
  if (conf.find("cudaMallocAsync") != std::string::npos) {
    lines.push_back({"allocator", Level::kOk, "cudaMallocAsync: blocks are the driver's", ""});
  } else if (variable("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1") {
    lines.push_back(
        {"allocator", Level::kOk, "no caching: slower, and every free reaches the driver", ""});
  } else {
    lines.push_back({"allocator", Level::kOk,
                     "PyTorch's caching allocator" + (conf.empty() ? "" : " with " + conf), ""});
  }
}

}  // namespace convtrace::tools::doctor
