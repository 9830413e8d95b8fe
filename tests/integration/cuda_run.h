#pragma once
/// @file cuda_run.h
/// Runs a driver-API program over the fake CUDA under the real preload library, and reads what its
/// trace holds through `convtrace show --json`.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace convtrace::test {

using Json = nlohmann::json;

/// How long a program pauses before its first step, so that the context is prepared when it comes.
/// With a seed several programs run at once.
inline std::string pause_ms() { return getenv("FAKECUDA_SEED") == nullptr ? "1000" : "3000"; }

inline int count_lines(const std::string& text) {
  return static_cast<int>(std::ranges::count(text, '\n'));
}

/// Which fake libraries the program finds.
enum class Fakes {
  kAll,
  kNoCupti,
  kOldCupti,   ///< one that lacks most functions
  kCupti12,    ///< its CUPTI is CUDA 12's, by name
  kOldDriver,  ///< CUDA 12.2: the driver tells no names and no parameters of kernels
};

class CudaRun {
 public:
  explicit CudaRun(Fakes fakes = Fakes::kAll) : fakes_(fakes) {}

  /// Adds a variable to the program's environment.
  CudaRun& with(std::string entry) {
    extra_.push_back(std::move(entry));
    return *this;
  }

  /// Writes a settings file and names it to the program.
  CudaRun& with_rules(const std::string& toml) {
    std::ofstream(folder_ / "rules.toml") << toml;
    return with("CONVTRACE_CONFIG=" + folder_ / "rules.toml");
  }

  ProcessResult run(std::vector<std::string> arguments) {
    arguments.front() = std::string(PROGRAMS) + "/" + arguments.front();
    return run_process(arguments, options(true));
  }
  ProcessResult run_untraced(std::vector<std::string> arguments) {
    arguments.front() = std::string(PROGRAMS) + "/" + arguments.front();
    return run_process(arguments, options(false));
  }

  [[nodiscard]] std::string trace() const { return folder_ / "run.ctrace"; }

  /// Gives each process a trace of its own.
  CudaRun& with_traces_by_pid() { return with("CONVTRACE_OUTPUT=" + folder_ / "%p.ctrace"); }
  /// @return all traces, in no order.
  [[nodiscard]] std::vector<std::string> traces() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      if (entry.path().extension() == ".ctrace") found.push_back(entry.path());
    return found;
  }

  /// @return what `convtrace info` says of a trace.
  [[nodiscard]] static Json info(const std::string& trace) {
    const ProcessResult shown =
        run_process({std::string(BUILD_FOLDER) + "/bin/convtrace", "info", "--json", trace});
    INFO(shown.err);
    REQUIRE((shown.exit_code == 0 || shown.exit_code == 3));  // 3: not closed
    return Json::parse(shown.out);
  }

  /// @return the trace's records of one kind.
  [[nodiscard]] std::vector<Json> records(const std::string& kind) const {
    const ProcessResult shown =
        run_process({std::string(BUILD_FOLDER) + "/bin/convtrace", "show", "--json", trace()});
    INFO(shown.err);
    REQUIRE(shown.exit_code == 0);
    std::vector<Json> found;
    std::istringstream lines(shown.out);
    for (std::string line; std::getline(lines, line);)
      if (Json record = Json::parse(line); record.at("record") == kind)
        found.push_back(std::move(record));
    return found;
  }

  /// @return how often each kernel was launched, by mangled name.
  [[nodiscard]] std::map<std::string, int> launches() const {
    std::map<std::string, int> counts;
    for (const Json& launch : records("launch")) ++counts[launch.at("kernel")];
    return counts;
  }

 private:
  [[nodiscard]] ProcessOptions options(bool traced) {
    ProcessOptions result;
    const std::string fakes = std::string(BUILD_FOLDER) + "/fakecuda";
    const std::string path = fakes_ == Fakes::kAll ? fakes : make_libraries(fakes);
    // These programs have no CPU tensors whose watch could end.
    result.environment = {"LD_LIBRARY_PATH=" + path, "CONVTRACE_OUTPUT=" + trace(),
                          "CONVTRACE_CPU_ALLOC=on"};
    if (traced)
      result.environment.push_back("LD_PRELOAD=" + std::string(BUILD_FOLDER) +
                                   "/lib/libconvtrace.so");
    result.environment.insert(result.environment.end(), extra_.begin(), extra_.end());
    return result;
  }

  /// A folder of libraries like that of the fakes, but for what is missing or old.
  [[nodiscard]] std::string make_libraries(const std::string& fakes) const {
    namespace fs = std::filesystem;
    const std::string path = folder_ / "lib";
    if (!fs::create_directory(path)) return path;
    std::string driver = read_file(fakes + "/libcuda.so.1");
    if (fakes_ == Fakes::kOldDriver) {
      for (const char* name :
           {"cuFuncGetName", "cuKernelGetName", "cuFuncGetParamInfo", "cuKernelGetParamInfo"})
        rename_symbol(driver, name);
    }
    std::ofstream(path + "/libcuda.so.1", std::ios::binary) << driver;
    // Where there is no CUPTI of that name a file that cannot be loaded: the system may have one.
    for (const std::string name : {"libcupti.so.13", "libcupti.so.12"}) {
      const bool there = name == (fakes_ == Fakes::kCupti12 ? "libcupti.so.12" : "libcupti.so.13");
      if (there && fakes_ != Fakes::kNoCupti) {
        fs::create_symlink(fakes_ == Fakes::kOldCupti
                               ? std::string(PROGRAMS) + "/libcuda_old_cupti.so"
                               : fakes + "/libcupti.so.13",
                           path + "/" + name);
      } else {
        std::ofstream(path + "/" + name) << "not a library";
      }
    }
    return path;
  }

  /// In every string table of a library: what has another name is not found.
  static void rename_symbol(std::string& library, const std::string& name) {
    const std::string wanted = '\0' + name + '\0';
    for (size_t at = 0; (at = library.find(wanted, at)) != std::string::npos; ++at)
      library[at + 1] = '_';
  }

  Fakes fakes_;
  TempDir folder_;
  std::vector<std::string> extra_;
};

}  // namespace convtrace::test
