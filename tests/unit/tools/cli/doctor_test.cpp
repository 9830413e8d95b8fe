#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/unit/tools/cli/cli.h"

// Every line of the doctor is made to complain once.

namespace convtrace::test {
namespace {

namespace fs = std::filesystem;
using tools::Json;

/// A tree whose parts can be taken away.
class DoctorTree {
 public:
  DoctorTree() {
    for (const char* folder : {"bin", "lib", "share/convtrace/observer", "out"})
      fs::create_directories(root_ / folder);
    fs::copy_file(CONVTRACE_PROGRAM, root_ / "bin/convtrace");
    for (const char* part : kParts) std::ofstream(root_ / part).put('\n');
  }

  struct Answer {
    int exit_code = 0;
    Json checks;
    /// @return the worst level among the lines of that name, "" if there is none.
    [[nodiscard]] std::string level(const std::string& name) const {
      std::string worst;
      for (const Json& check : checks) {
        if (check.at("name") != name) continue;
        const std::string level = check.at("level");
        if (level == "fail" || worst.empty() || worst == "ok") worst = level;
        CHECK((level == "ok") == check.at("remedy").is_null());
      }
      return worst;
    }
    /// @return what the first line of that name says.
    [[nodiscard]] std::string text(const std::string& name) const {
      for (const Json& check : checks)
        if (check.at("name") == name) return check.at("text");
      return "";
    }
  };

  [[nodiscard]] Answer ask(std::vector<std::string> environment = {},
                           std::vector<std::string> command = {}) const {
    std::vector<std::string> words = {root_ / "bin/convtrace", "doctor", "--json"};
    if (!command.empty()) words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    environment.push_back("CONVTRACE_OUTPUT=" + (root_ / "out/%p.ctrace"));
    const ProcessResult result = run_process(words, options(std::move(environment)));
    INFO(result.err);
    REQUIRE(!result.out.empty());
    return {result.exit_code, Json::parse(result.out).at("checks")};
  }

  /// The same with an output of the test's own.
  [[nodiscard]] Answer ask_output(const std::string& output) const {
    const ProcessResult result = run_process({root_ / "bin/convtrace", "doctor", "--json"},
                                             options({"CONVTRACE_OUTPUT=" + output}));
    REQUIRE(!result.out.empty());
    return {result.exit_code, Json::parse(result.out).at("checks")};
  }

  [[nodiscard]] std::string file(const std::string& name) const { return root_ / name; }

  static constexpr const char* kParts[] = {"lib/libconvtrace.so", "lib/libconvtrace-core.so",
                                           "share/convtrace/observer/sitecustomize.py"};

 private:
  [[nodiscard]] ProcessOptions options(std::vector<std::string> environment) const {
    return {std::move(environment),
            {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
             "PYTORCH_NO_CUDA_MEMORY_CACHING"},
            root_.path()};
  }

  TempDir root_;
};

/// A program of our own in place of a real one.
std::string script(const DoctorTree& tree, const std::string& name, const std::string& text) {
  std::string path = tree.file(name);
  std::ofstream(path) << "#!/bin/sh\n" << text;
  chmod(path.c_str(), 0755);
  return path;
}

/// Runs something in a child whose limit is lowered: a limit of this process cannot be taken back.
std::string with_limit(const std::string& option) {
  return "ulimit " + option + "; exec \"$0\" \"$@\"";
}

}  // namespace

TEST_CASE("doctor: a whole tree in an ordinary place has nothing that fails", "[cli]") {
  const DoctorTree tree;
  const auto answer = tree.ask();
  CHECK(answer.exit_code == 0);
  for (const char* name : {"tree", "preload", "settings", "output", "space", "limits", "driver",
                           "other-tools", "allocator"}) {
    CAPTURE(name);
    CHECK_FALSE(answer.level(name).empty());
    CHECK(answer.level(name) != "fail");
  }
}

TEST_CASE("doctor: a part of the tree that is missing", "[cli]") {
  for (const char* part : DoctorTree::kParts) {
    const DoctorTree tree;
    fs::remove(tree.file(part));
    const auto answer = tree.ask();
    CHECK(answer.exit_code == 1);
    CHECK(answer.level("tree") == "fail");
  }
}

TEST_CASE("doctor: a preload list that will not do", "[cli]") {
  const DoctorTree tree;
  // The dynamic loader complains of them too, on stderr.
  CHECK(tree.ask({"LD_PRELOAD=libconvtrace.so"}).level("preload") == "fail");
  CHECK(tree.ask({"LD_PRELOAD=/nowhere/libconvtrace.so"}).level("preload") == "fail");
}

TEST_CASE("doctor: settings that mean nothing, and tracing turned off", "[cli]") {
  const DoctorTree tree;
  const auto answer = tree.ask({"CONVTRACE_STEPZ=3"});
  CHECK(answer.exit_code == 1);
  CHECK(answer.level("settings") == "fail");
  CHECK(tree.ask({"CONVTRACE=0"}).level("settings") == "warn");
  CHECK(tree.ask({"CONVTRACE_MODE=off"}).level("settings") == "warn");
}

TEST_CASE("doctor: settings that are good and leave the user without what was meant", "[cli]") {
  const DoctorTree tree;
  CHECK(tree.ask().level("settings") == "ok");
  CHECK(tree.ask({"CONVTRACE_ALL=1"}).level("settings") == "warn");
  CHECK(tree.ask({"CONVTRACE_RANKS=3"}).level("settings") == "warn");
  CHECK(tree.ask({"CONVTRACE_RANKS=3", "RANK=3"}).level("settings") == "ok");
  CHECK(tree.ask({"CONVTRACE_LOG_FILE=/nowhere/log"}).level("settings") == "warn");
  CHECK(tree.ask({"CONVTRACE_LOG_FILE=" + tree.file("out")}).level("settings") == "warn");
  CHECK(tree.ask({"CONVTRACE_LOG_FILE=" + tree.file("out/log")}).level("settings") == "ok");
}

TEST_CASE("doctor: an output that cannot be written", "[cli]") {
  const DoctorTree tree;
  CHECK(tree.ask_output(tree.file("bin/convtrace/x.ctrace")).level("output") == "fail");
  std::ofstream(tree.file("out/taken.ctrace")).put('x');
  CHECK(tree.ask_output(tree.file("out/taken.ctrace")).level("output") == "fail");
  CHECK(tree.ask_output(tree.file("out")).level("output") == "fail");
  CHECK(tree.ask_output(tree.file("out/new/%r.ctrace")).level("output") == "ok");
  CHECK(tree.ask_output(tree.file("out/new/folder/%r.ctrace")).level("output") == "fail");
  CHECK(tree.ask_output("/proc/x.ctrace").level("space") == "fail");  // 0 bytes are free there
}

TEST_CASE("doctor: limits of the process", "[cli]") {
  const DoctorTree tree;
  for (const char* limit : {"-f 100000", "-v 50000000"}) {
    const ProcessResult result = run_process(
        {"sh", "-c", with_limit(limit), tree.file("bin/convtrace"), "doctor"}, {{}, {}, {}});
    CAPTURE(limit, result.out, result.err);
    CHECK(result.out.find("warn  limits: ") != std::string::npos);
  }
}

TEST_CASE("doctor: no driver, and other tools that enter", "[cli]") {
  const DoctorTree tree;
  std::ofstream(tree.file("libcuda.so.1")) << "not a library";
  const std::string none = "LD_LIBRARY_PATH=" + tree.file("");
  CHECK(tree.ask({none}).level("driver") == "warn");
  CHECK(tree.ask({none, "CONVTRACE_MODE=launches"}).level("driver") == "fail");
  CHECK(tree.ask({none, "CONVTRACE_CUPTI=/nowhere/libcupti.so"}).level("cupti") == "fail");
  for (const char* entry : {"CUDA_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so",
                            "NVTX_INJECTION64_PATH=/opt/x.so"}) {
    CAPTURE(entry);
    CHECK(tree.ask({entry}).level("other-tools") == "warn");
  }
  // Kineto of any version subscribes to CUPTI no earlier for it: libkineto/src/init.cpp.
  CHECK(tree.ask({"KINETO_USE_DAEMON=1"}).level("other-tools") == "ok");
}

TEST_CASE("doctor: drivers and CUPTI of all kinds", "[cli]") {
  const DoctorTree tree;
  const std::string drivers = "LD_LIBRARY_PATH=" CONVTRACE_FAKE_CUDA;
  const std::vector<std::string> no_python = {script(tree, "python3.12", "exit 3")};
  const auto level = [&](const std::string& check, std::vector<std::string> environment) {
    environment.push_back(drivers);
    return tree.ask(std::move(environment), no_python).level(check);
  };
  CHECK(level("driver", {}) == "ok");
  CHECK(level("cupti", {}) == "ok");
  CHECK(level("driver", {"FAKECUDA_DRIVER_VERSION=12040"}) == "ok");
  CHECK(level("driver", {"FAKECUDA_DRIVER_VERSION=12020"}) == "warn");  // launches lack operands
  CHECK(level("driver", {"FAKECUDA_DRIVER_VERSION=11080"}) == "fail");
  CHECK(level("driver", {"FAKECUDA_DEVICES=0"}) == "warn");
  CHECK(level("driver", {"FAKECUDA_INIT_RESULT=999"}) == "warn");
  CHECK(level("cupti", {"FAKECUDA_DRIVER_VERSION=12040"}) == "fail");  // it is CUPTI of CUDA 13
  CHECK(level("cupti", {"CONVTRACE_CUPTI=/nowhere/libcupti.so"}) == "fail");
}

TEST_CASE("doctor: CUPTI is missing, or comes with PyTorch", "[cli]") {
  const DoctorTree tree;
  fs::create_directories(tree.file("cuda"));
  fs::create_directories(tree.file("wheel"));
  const fs::path fake = CONVTRACE_FAKE_CUDA;
  fs::copy_file(fake / "libcuda.so.1", tree.file("cuda/libcuda.so.1"));
  fs::copy_file(fake / "libcupti.so.13", tree.file("wheel/libcupti.so.13"));
  // In front of any that the machine has.
  for (const char* name : {"libcupti.so.13", "libcupti.so.12"})
    std::ofstream(tree.file(std::string("cuda/") + name)) << "not a library";
  const std::string library = "LD_LIBRARY_PATH=" + tree.file("cuda");
  const auto python = [&tree](const std::string& name, const std::string& cupti) {
    return script(
        tree, name,
        R"(echo '{"python": [3, 12], "torch": null, "hooks": [], "cupti": [)" + cupti + R"(]}')");
  };
  CHECK(tree.ask({library}, {python("python3.12", "")}).level("cupti") == "warn");
  const std::string bundled = '"' + tree.file("wheel/libcupti.so.13") + '"';
  CHECK(tree.ask({library}, {python("python3.13", bundled)}).level("cupti") == "ok");
}

TEST_CASE("doctor: CUPTI is looked for in the engine's order", "[cli]") {
  const DoctorTree tree;
  const fs::path fake = CONVTRACE_FAKE_CUDA;
  for (const char* folder : {"cuda", "wheel-12", "wheel-13"})
    fs::create_directories(tree.file(folder));
  fs::copy_file(fake / "libcuda.so.1", tree.file("cuda/libcuda.so.1"));
  for (const char* name : {"cuda/libcupti.so.13", "cuda/libcupti.so.12", "wheel-13/libcupti.so.13",
                           "wheel-12/libcupti.so.12"})
    fs::copy_file(fake / "libcupti.so.13", tree.file(name));
  const std::string of_12 = tree.file("wheel-12/libcupti.so.12");
  const std::string of_13 = tree.file("wheel-13/libcupti.so.13");
  int scripts = 0;
  const auto said = [&](const std::string& driver, const std::vector<std::string>& bundled,
                        std::vector<std::string> environment = {}) {
    const std::string answer = Json{
        {"python", {3, 12}},
        {"torch", nullptr},
        {"hooks", Json::array()},
        {"cupti", bundled}}.dump();
    environment.insert(environment.end(), {"LD_LIBRARY_PATH=" + tree.file("cuda"),
                                           "FAKECUDA_DRIVER_VERSION=" + driver});
    const std::string python =
        script(tree, "python3." + std::to_string(++scripts), "echo '" + answer + "'");
    const auto result = tree.ask(std::move(environment), {python});
    return result.level("cupti") + " " + result.text("cupti");
  };
  CHECK(said("13000", {}) == "ok libcupti.so.13");
  CHECK(said("12040", {}) == "ok libcupti.so.12");  // one that is not newer than the driver
  CHECK(said("13000", {of_12}) == "ok " + of_12);   // of these PyTorch's
  CHECK(said("13000", {of_13}) == "ok " + of_13);
  CHECK(said("12040", {of_13}) == "ok libcupti.so.12");
  CHECK(said("12040", {of_13, of_12}) == "ok " + of_12);
  const std::string newer = "fail " + of_13 + " is newer than the driver, CUDA 12.4";
  CHECK(said("12040", {of_12}, {"CONVTRACE_CUPTI=" + of_13}) == newer);  // asked for, it is taken
  CHECK(said("13000", {of_13}, {"CONVTRACE_CUPTI=" + of_12}) == "ok " + of_12);
}

TEST_CASE("doctor: whether memory of CPU tensors is watched", "[cli]") {
  const DoctorTree tree;
  CHECK(tree.ask().level("cpu-memory") == "ok");
  CHECK(tree.ask({"CONVTRACE_CPU_ALLOC=on"}).level("cpu-memory") == "ok");
  CHECK(tree.ask({"CONVTRACE_CPU_ALLOC=off"}).level("cpu-memory") == "warn");
}

TEST_CASE("doctor: an allocator that costs much, or is asked for twice", "[cli]") {
  const DoctorTree tree;
  CHECK(tree.ask().level("allocator") == "ok");
  CHECK(tree.ask({"PYTORCH_ALLOC_CONF=backend:cudaMallocAsync"}).level("allocator") == "ok");
  CHECK(tree.ask({"PYTORCH_NO_CUDA_MEMORY_CACHING=1"}).level("allocator") == "warn");
  CHECK(tree.ask({"PYTORCH_NO_CUDA_MEMORY_CACHING=1", "CONVTRACE_STRICT_ALLOC=1"})
            .level("allocator") == "ok");
  CHECK(tree.ask({"PYTORCH_ALLOC_CONF=a:1", "PYTORCH_CUDA_ALLOC_CONF=a:2"}).level("allocator") ==
        "warn");
}

TEST_CASE("doctor: the Python inside of what a shell or a script starts", "[cli]") {
  const DoctorTree tree;
  const std::string old =
      script(tree, "python3.7", R"(echo '{"python": [3, 7], "torch": null, "hooks": []}')");
  const std::string torchrun = tree.file("torchrun");
  std::ofstream(torchrun) << "#!" << old << "\nimport torch\n";
  chmod(torchrun.c_str(), 0755);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"bash", "-c", "cd /tmp && X=1 " + old + " -I train.py"},
        {"sh", "-ec", '"' + old + "\" train.py"},
        {torchrun, "--nproc-per-node", "2", "train.py"},
        {"env", "A=b", old}}) {
    CAPTURE(command);
    const auto answer = tree.ask({}, command);
    CHECK(answer.level("command") == "ok");
    CHECK(answer.level("python") == "fail");
    CHECK(answer.level("python-options") ==
          (command.back().ends_with("-I train.py") ? "warn" : ""));
  }
}

TEST_CASE("doctor: a Python that is too old, absent, without PyTorch or kept from us", "[cli]") {
  const DoctorTree tree;
  const std::string old =
      script(tree, "python3.6",
             R"(echo '{"python": [3, 6], "torch": "1.10", "hooks": [], "flags": [0, 0]}')");
  const auto answer = tree.ask({}, {old, "-I", "train.py"});
  CHECK(answer.exit_code == 1);
  CHECK(answer.level("python") == "fail");
  CHECK(answer.level("python-options") == "warn");
  CHECK(answer.level("torch") == "warn");
  CHECK(answer.level("memory-hook") == "warn");
  const std::string bare =
      script(tree, "python3.9",
             R"(echo '{"python": [3, 9], "torch": null, "hooks": [], "flags": [0, 0]}')");
  const auto without = tree.ask({}, {bare});
  CHECK(without.level("torch") == (without.level("driver") == "ok" ? "warn" : "fail"));
  CHECK(tree.ask({}, {script(tree, "python3.10", "exit 3")}).level("python") == "warn");
  CHECK(tree.ask({}, {script(tree, "python3.11", "echo '[1]'; kill -9 $$")}).level("python") ==
        "warn");
}

TEST_CASE("doctor: commands that no library can be preloaded into", "[cli]") {
  const DoctorTree tree;
  CHECK(tree.ask({}, {"./nothing"}).level("command") == "fail");
  CHECK(tree.ask({}, {"sh", "-c", "true"}).level("command") == "ok");
  const std::string program = tree.file("static");
  std::ofstream(tree.file("main.c")) << "int main(void) { return 0; }\n";
  REQUIRE(run_process({"cc", "-static", "-o", program, tree.file("main.c")}).exit_code == 0);
  CHECK(tree.ask({}, {program}).level("command") == "fail");
  const std::string setuid = tree.file("setuid");
  fs::copy_file("/bin/true", setuid);
  REQUIRE(chmod(setuid.c_str(), 04755) == 0);
  CHECK(tree.ask({}, {setuid}).level("command") == "fail");
}

TEST_CASE("doctor: commands that lose the library, or have nothing to run", "[cli]") {
  const DoctorTree tree;
  const auto level = [&tree](std::vector<std::string> command) {
    return tree.ask({}, std::move(command)).level("command");
  };
  CHECK(level({"env", "-i", "sh", "-c", "true"}) == "fail");
  CHECK(level({"env", "-u", "LD_PRELOAD", "sh"}) == "fail");
  CHECK(level({"env", "-u", "HOME", "A=b", "sh", "-i"}) == "ok");
  const std::string python =
      script(tree, "python3.12", R"(echo '{"python": [3, 12], "torch": null, "hooks": []}')");
  CHECK(level({python, "nosuch.py"}) == "fail");
  CHECK(level({python, "-X", "dev", tree.file("python3.12"), "nosuch.py"}) == "ok");
  CHECK(level({python, "-m", "nosuch"}) == "ok");
  CHECK(level({python, "-cpass", "nosuch.py"}) == "ok");
}

TEST_CASE("doctor: people get a line a check, with what to do below it", "[cli]") {
  const DoctorTree tree;
  fs::remove(tree.file("lib/libconvtrace-core.so"));
  const ProcessResult result = run_process({tree.file("bin/convtrace"), "doctor"});
  CHECK(result.exit_code == 1);
  CHECK(result.err.empty());
  CHECK(result.out.starts_with(
      "fail  tree: lib/libconvtrace-core.so is not beside this program\n      -> install the "));
}

}  // namespace convtrace::test
