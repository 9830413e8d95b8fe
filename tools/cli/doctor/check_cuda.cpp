#include <dlfcn.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/cli/doctor/check.h"

namespace convtrace::tools::doctor {
namespace {

// Constants of cuda.h and cupti_result.h, which the tools do not include.
constexpr int kSuccess = 0;

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// @return the driver's CUDA version as cuda.h writes it, 0 without a driver.
int check_devices(std::vector<Line>& lines) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    lines.push_back({"driver", Level::kWarn, "no CUDA driver: libcuda.so.1 is not found",
                     "training on the CPU is traced; in a container, start it with its GPUs"});
    return 0;
  }
  auto* const init = find<int(unsigned)>(library, "cuInit");
  auto* const count = find<int(int*)>(library, "cuDeviceGetCount");
  auto* const version_of = find<int(int*)>(library, "cuDriverGetVersion");
  int version = 0, devices = 0;
  const int result = init == nullptr ? -1 : init(0);
  if (result != kSuccess || count == nullptr || count(&devices) != kSuccess || devices == 0) {
    lines.push_back({"driver", Level::kWarn,
                     "the driver has no device for us (cuInit says " + std::to_string(result) + ")",
                     "look at nvidia-smi and CUDA_VISIBLE_DEVICES; the CPU is traced"});
    return 0;
  }
  if (version_of != nullptr) version_of(&version);
  const std::string text =
      "CUDA " + version_text(version) + ", devices: " + std::to_string(devices);
  if (version < 12000) {
    lines.push_back(
        {"driver", Level::kFail, text, "kernels are seen with drivers of CUDA 12 and later"});
  } else if (version < 12040) {
    lines.push_back({"driver", Level::kWarn, text,
                     "launches have no operands, and rules for kernels take no values, before CUDA "
                     "12.4 (R550)"});
  } else {
    lines.push_back({"driver", Level::kOk, text, ""});
  }
  return version;
}

/// @return the first of the candidates that can be opened; "" if none can.
std::string first_that_opens(const std::vector<std::string>& candidates) {
  const auto opens = [](const std::string& name) {
    return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
  };
  const auto found = std::ranges::find_if(candidates, opens);
  return found == candidates.end() ? "" : *found;
}

int major_of(const std::string& library) {
  return library.find(".so.12") != std::string::npos ? 12 : 13;
}

/// In the order of the engine: the one that is set; else those that are not newer than the driver,
/// and among these the copy of PyTorch's packages first.
std::vector<std::string> cupti_candidates(const Subject& subject, int driver) {
  const std::string& path = subject.settings.settings.cupti;
  if (!path.empty()) return {path};
  std::vector<std::string> candidates;
  if (subject.answer.is_object()) candidates = subject.answer.value("cupti", candidates);
  candidates.insert(candidates.end(), {"libcupti.so.13", "libcupti.so.12"});
  // Not std::ranges's, which clang 14 cannot compile.
  std::stable_partition(candidates.begin(), candidates.end(), [driver](const std::string& name) {
    return major_of(name) <= driver / 1000;
  });
  return candidates;
}

}  // namespace

void check_driver(const Subject& subject, std::vector<Line>& lines) {
  const int driver = check_devices(lines);
  if (driver == 0 && subject.settings.settings.mode == settings::Mode::kLaunches) {
    lines.push_back({"driver", Level::kFail, "mode launches records what a GPU runs, and no other",
                     "take mode stats or hash, which see PyTorch's modules on the CPU too"});
  }
  const std::string& path = subject.settings.settings.cupti;
  if (!path.empty() && first_that_opens({path}).empty()) {
    lines.push_back({"cupti", Level::kFail,
                     "CONVTRACE_CUPTI names " + path + ", which does not load",
                     "name the file libcupti.so.13 or libcupti.so.12 itself, or unset it"});
    return;
  }
  if (driver == 0) return;
  const std::string found = first_that_opens(cupti_candidates(subject, driver));
  if (found.empty()) {
    lines.push_back({"cupti", Level::kWarn,
                     "neither the loader nor PyTorch's packages have libcupti.so.13 or .12",
                     "driver allocations would not be seen: install it or set CONVTRACE_CUPTI"});
    return;
  }
  const bool newer = major_of(found) > driver / 1000;
  lines.push_back(
      {"cupti", newer ? Level::kFail : Level::kOk,
       found + (newer ? " is newer than the driver, CUDA " + version_text(driver) : ""),
       newer ? "use the CUPTI of the driver's CUDA version, or update the driver" : ""});
}

void check_other_tools(const Subject&, std::vector<Line>& lines) {
  const size_t before = lines.size();
  const std::string injected = variable("CUDA_INJECTION64_PATH");
  if (!injected.empty() && injected.find("libconvtrace-core.so") == std::string::npos) {
    lines.push_back({"other-tools", Level::kWarn,
                     "CUDA_INJECTION64_PATH names another tool: " + injected,
                     "it may hold CUPTI, then kernels are missing: run without it"});
  }
  for (const char* name :
       {"NVTX_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NV_NSIGHT_INJECTION_PATH"}) {
    if (variable(name).empty()) continue;
    lines.push_back({"other-tools", Level::kWarn,
                     std::string(name) + " is set: a profiler starts this program",
                     "profile and trace in separate runs"});
  }
  if (lines.size() == before)
    lines.push_back({"other-tools", Level::kOk, "no other tool is set to enter", ""});
}

}  // namespace convtrace::tools::doctor
