#pragma once
/// @file cuda_run.h
/// Runs a driver-API program over the fake CUDA under the real preload library, and reads what its
/// trace holds through `convtrace show --json`.

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

/// Which fake libraries the program finds.
enum class Fakes { kAll, kNoCupti };

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
    std::string path = fakes;
    if (fakes_ == Fakes::kNoCupti) {
      // The driver alone, and in CUPTI's place a file that cannot be loaded: the system may have
      // the real one.
      namespace fs = std::filesystem;
      path = folder_ / "lib";
      fs::create_directory(path);
      fs::create_symlink(fakes + "/libcuda.so.1", path + "/libcuda.so.1");
      for (const char* name : {"libcupti.so.13", "libcupti.so.12"})
        std::ofstream(path + "/" + name) << "not a library";
    }
    result.environment = {"LD_LIBRARY_PATH=" + path, "CONVTRACE_OUTPUT=" + trace()};
    if (traced)
      result.environment.push_back("LD_PRELOAD=" + std::string(BUILD_FOLDER) +
                                   "/lib/libconvtrace.so");
    result.environment.insert(result.environment.end(), extra_.begin(), extra_.end());
    return result;
  }

  Fakes fakes_;
  TempDir folder_;
  std::vector<std::string> extra_;
};

}  // namespace convtrace::test
