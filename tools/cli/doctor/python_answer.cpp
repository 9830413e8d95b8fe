#include "tools/cli/doctor/python_answer.h"

#include <nlohmann/json.hpp>

#include "tools/common/child.h"

namespace convtrace::tools::doctor {
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

}  // namespace

nlohmann::json python_answer(const std::string& python) {
  const auto text = answer_of({python, "-c", kQuestion}, kPatience);
  nlohmann::json said = nlohmann::json::parse(text.value_or(""), nullptr, false);
  const bool sound = said.is_object() && said.contains("python") && said["python"].is_array() &&
                     said["python"].size() == 2 && said["python"][0].is_number_integer() &&
                     said["python"][1].is_number_integer();
  return sound ? said : nlohmann::json();
}

}  // namespace convtrace::tools::doctor
