#include <filesystem>
#include <map>

#include "tests/artifact/artifacts.h"
#include "tests/support/catch.h"

namespace convtrace::test {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> variables_in(const FakeTree& tree,
                                                std::vector<std::string> environment = {}) {
  environment.push_back("LD_PRELOAD=" + tree.stub());
  const ProcessResult result =
      run_process({"env", "-0"}, {std::move(environment), kForeignVariables, {}});
  std::map<std::string, std::string> variables;
  for (size_t begin = 0; begin < result.out.size();) {
    const size_t end = result.out.find('\0', begin);
    const std::string entry = result.out.substr(begin, end - begin);
    variables[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    begin = end + 1;
  }
  return variables;
}

}  // namespace

TEST_CASE("preload: the environment names engine and observer by absolute paths", "[artifact]") {
  const FakeTree tree;
  auto variables = variables_in(tree);
  CHECK(variables["CUDA_INJECTION64_PATH"] == tree.core());
  CHECK(variables["CONVTRACE_CORE"] == tree.core());
  CHECK(variables["PYTHONPATH"] == tree.observer());
}

TEST_CASE("preload: what is switched off and a missing engine change nothing", "[artifact]") {
  const FakeTree tree;
  for (const std::string setting : {"CONVTRACE=0", "CONVTRACE_MODE=off", "CONVTRACE=1"}) {
    CAPTURE(setting);
    if (setting == "CONVTRACE=1") fs::remove(tree.core());
    std::vector<std::string> environment = {setting, "PYTHONPATH=/mine"};
    if (setting != "CONVTRACE=1")  // as a traced process leaves it to its children
      environment.push_back("CUDA_INJECTION64_PATH=" + std::string(tree.core()));
    auto variables = variables_in(tree, environment);
    CHECK(variables.count("CUDA_INJECTION64_PATH") == 0);
    CHECK(variables.count("CONVTRACE_CORE") == 0);
    CHECK(variables["PYTHONPATH"] == "/mine");
  }
}

TEST_CASE("preload: strict_alloc switches caches off, and edits what says which allocator",
          "[artifact]") {
  const FakeTree tree;
  CHECK(variables_in(tree).count("PYTORCH_NO_CUDA_MEMORY_CACHING") == 0);
  const std::string strict = "CONVTRACE_STRICT_ALLOC=1";
  auto variables = variables_in(tree, {strict});
  CHECK(variables["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1");
  CHECK(variables["XLA_PYTHON_CLIENT_ALLOCATOR"] == "platform");
  CHECK(variables["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false");
  CHECK(variables.count("PYTORCH_ALLOC_CONF") == 0);
  CHECK(variables.count("PYTORCH_CUDA_ALLOC_CONF") == 0);
  const std::pair<std::string, std::string> cases[] = {
      {"backend:cudaMallocAsync", "backend:native"},
      {"max_split_size_mb:64,backend:cudaMallocAsync,garbage_collection_threshold:0.8",
       "max_split_size_mb:64,backend:native,garbage_collection_threshold:0.8"},
      {"expandable_segments:True", "expandable_segments:True"},
      {"", ""},
  };
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    for (const auto& [before, after] : cases) {
      CAPTURE(name, before);
      CHECK(variables_in(tree, {strict, name + ('=' + before)})[name] == after);
      CHECK(variables_in(tree, {name + ('=' + before)})[name] == before);
    }
  }
}

TEST_CASE("preload: another tool's injection library is kept", "[artifact]") {
  const FakeTree tree;
  auto variables = variables_in(tree, {"CUDA_INJECTION64_PATH=/opt/other.so"});
  CHECK(variables["CUDA_INJECTION64_PATH"] == "/opt/other.so");
  CHECK(variables["CONVTRACE_CORE"] == tree.core());
}

TEST_CASE("preload: PYTHONPATH gets the observer first and once, and no empty entry",
          "[artifact]") {
  const FakeTree tree;
  const std::string observer = tree.observer();
  const std::pair<std::string, std::string> cases[] = {
      {"", observer},
      {"/a", observer + ":/a"},
      {"/a:/b", observer + ":/a:/b"},
      {observer, observer},
      {observer + ":/a", observer + ":/a"},
      {"/a:" + observer, observer + ":/a"},
      {"/a:" + observer + ":/b", observer + ":/a:/b"},
      {observer + ":" + observer, observer},
      {"/a:" + observer + ":", observer + ":/a:"},  // the user's own empty entry stays
      {"/a::/b", observer + ":/a::/b"},
      {observer + "2", observer + ":" + observer + "2"},
  };
  for (const auto& [before, after] : cases) {
    CAPTURE(before);
    CHECK(variables_in(tree, {"PYTHONPATH=" + before})["PYTHONPATH"] == after);
  }
}

TEST_CASE("preload: a child of a child sees the same environment", "[artifact]") {
  const FakeTree tree;
  const ProcessResult result =
      run_process({"sh", "-c", "sh -c 'echo $PYTHONPATH:$CUDA_INJECTION64_PATH'"},
                  {{"LD_PRELOAD=" + tree.stub()}, kForeignVariables, {}});
  CHECK(result.out == tree.observer() + ":" + tree.core() + "\n");
}

TEST_CASE("preload: a relative LD_PRELOAD path and a symbolic link still lead to the tree",
          "[artifact]") {
  const FakeTree tree;
  const TempDir elsewhere;
  const std::string link = elsewhere / "link.so";
  fs::create_symlink(tree.stub(), link);
  for (const std::string& preload : {std::string("./lib/libconvtrace.so"), link}) {
    CAPTURE(preload);
    const ProcessResult result =
        run_process({"printenv", "CONVTRACE_CORE"},
                    {{"LD_PRELOAD=" + preload}, kForeignVariables, tree.root()});
    CHECK(result.out == tree.core() + "\n");
  }
}

TEST_CASE("preload: CPU tensors are reported from the start, whatever devices there may be",
          "[artifact]") {
  const FakeTree tree;
  const std::pair<std::string, std::string> cases[] = {
      {"CONVTRACE_CPU_ALLOC=on", "1"},
      {"CONVTRACE_CPU_ALLOC=off", "0"},
      {"CONVTRACE_CPU_ALLOC=auto", "1"},
      {"CUDA_VISIBLE_DEVICES=0", "1"},
      {"CONVTRACE=0", "0"},
  };
  const std::string read_it =
      "from ctypes import *; print(c_int.in_dll(CDLL(None), 'convtrace_cpu_alloc_v1').value)";
  for (const auto& [variable, expected] : cases) {
    CAPTURE(variable);
    const ProcessResult result =
        run_process({"python3", "-c", read_it},
                    {{variable, "LD_PRELOAD=" + tree.stub()}, kForeignVariables, {}});
    CHECK(result.out == expected + "\n");
  }
}

}  // namespace convtrace::test
