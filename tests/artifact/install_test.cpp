#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/artifact/artifacts.h"
#include "tests/support/catch.h"

namespace convtrace::test {
namespace fs = std::filesystem;

TEST_CASE("install: the tree holds no path of the machine it was built on and can be moved",
          "[artifact]") {
  const TempDir root;
  const std::string first = root / "first", second = root / "second";
  const ProcessResult installed =
      run_process({CMAKE_PROGRAM, "--install", kBuild, "--prefix", first});
  INFO(installed.err);
  REQUIRE(installed.exit_code == 0);
  fs::rename(first, second);

  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(second)) {
    CHECK_FALSE(entry.is_symlink());
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string content = read_file(entry.path());
    CAPTURE(entry.path().string());
    for (const std::string& path : {std::string(SOURCE_FOLDER) + "/", kBuild, first})
      CHECK(content.find(path) == std::string::npos);
  }
  CHECK(files > 10);
  for (const char* name :
       {"bin/convtrace", "bin/convtrace-diff", "lib/libconvtrace.so", "lib/libconvtrace-core.so",
        "include/convtrace/hooks_v1.h", "share/convtrace/observer/sitecustomize.py",
        "share/man/man1/convtrace.1", "share/man/man1/convtrace-diff.1",
        "share/bash-completion/completions/convtrace",
        "share/bash-completion/completions/convtrace-diff"}) {
    CAPTURE(name);
    CHECK(fs::exists(second + "/" + name));
  }

  const ProcessResult child = run_process(
      {second + "/bin/convtrace", "run", "--", "printenv", "CONVTRACE_CORE", "PYTHONPATH"},
      {{}, kForeignVariables, root.path()});
  CHECK(child.exit_code == 0);
  CHECK(child.out ==
        second + "/lib/libconvtrace-core.so\n" + second + "/share/convtrace/observer\n");
}

}  // namespace convtrace::test
