#pragma once
/// @file artifacts.h
/// Where the built things lie, and how to start a program under the preload.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace convtrace::test {

inline const std::string kBuild = BUILD_FOLDER;
inline const std::string kStub = kBuild + "/lib/libconvtrace.so";
inline const std::string kCore = kBuild + "/lib/libconvtrace-core.so";

inline std::string program(const std::string& name) { return std::string(PROGRAMS) + "/" + name; }

/// Variables that would make a result depend on who runs the tests.
inline const std::vector<std::string> kForeignVariables = {
    "CONVTRACE",  "CONVTRACE_CORE", "CONVTRACE_CPU_ALLOC", "CUDA_INJECTION64_PATH",
    "PYTHONPATH", "LD_PRELOAD",     "CUDA_VISIBLE_DEVICES"};

inline ProcessResult run_preloaded(const std::vector<std::string>& arguments,
                                   std::vector<std::string> environment = {},
                                   const std::string& folder = {},
                                   const std::string& stub = kStub) {
  environment.push_back("LD_PRELOAD=" + stub);
  return run_process(arguments, {std::move(environment), kForeignVariables, folder});
}

/// A tree as installed, in which the engine and the observer are there but empty: the preload
/// library only looks for them.
class FakeTree {
 public:
  FakeTree() {
    std::filesystem::create_directories(root_.path() / "lib");
    std::filesystem::create_directories(observer());
    std::filesystem::copy_file(kStub, stub());
    std::ofstream(core()).put('\n');
  }
  [[nodiscard]] std::string stub() const { return root_ / "lib/libconvtrace.so"; }
  [[nodiscard]] std::string core() const { return root_ / "lib/libconvtrace-core.so"; }
  [[nodiscard]] std::string observer() const { return root_ / "share/convtrace/observer"; }
  [[nodiscard]] const std::filesystem::path& root() const { return root_.path(); }

 private:
  TempDir root_;
};

}  // namespace convtrace::test
