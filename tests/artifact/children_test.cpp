#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/artifact/artifacts.h"
#include "tests/support/catch.h"

namespace convtrace::test {

TEST_CASE("preload: programs that do not train say nothing new and leave no file", "[artifact]") {
  const std::vector<std::string> commands[] = {
      {"/bin/true"},
      {"bash", "-c", "echo $((6 * 7)) | cat; (exit 3)"},
      {"python3", "-c", "pass"},
      {"cc", "--version"},
      {"sh", "-c", "exec ls /"},
  };
  for (const auto& command : commands) {
    CAPTURE(command);
    const TempDir folder;
    const ProcessResult plain = run_process(command, {{}, kForeignVariables, "/"});
    const ProcessResult traced = run_preloaded(command, {}, folder.path());
    CHECK(traced.exit_code == plain.exit_code);
    CHECK(traced.out == plain.out);
    CHECK(traced.err == plain.err);
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("preload: dlsym(RTLD_NEXT) of another preload library finds what comes after it",
          "[artifact]") {
  const std::string other = program("libartifact_second_preload.so");
  for (const std::string& order : {kStub + ":" + other, other + ":" + kStub, other}) {
    CAPTURE(order);
    const ProcessResult result =
        run_process({program("artifact_print_getpid")}, {{"LD_PRELOAD=" + order}, {}, {}});
    CHECK(result.out == "next definition\n");
  }
}

TEST_CASE("preload: exceptions unwind as ever", "[artifact]") {
  const ProcessResult result = run_preloaded({program("artifact_throw")});
  CHECK(result.exit_code == 0);
  CHECK(result.out == "cleanup\ncleanup\ncleanup\ncaught\n");
}

TEST_CASE("preload: a musl program lives and is entered", "[artifact]") {
  if (!std::filesystem::exists(program("artifact_musl"))) {
    WARN("no musl-gcc here: not checked");
    return;
  }
  const FakeTree tree;
  const ProcessResult result = run_preloaded({program("artifact_musl")}, {}, {}, tree.stub());
  CHECK(result.exit_code == 0);
  CHECK(result.out == "traced\n");
  CHECK(result.err.empty());
}

TEST_CASE("preload: a static program is untouched, what it executes is not", "[artifact]") {
  const std::string still = program(GENERATE("artifact_static", "artifact_musl_static"));
  CAPTURE(still);
  if (!std::filesystem::exists(still)) {
    WARN("no musl-gcc here: not checked");
    return;
  }
  const FakeTree tree;
  CHECK(run_preloaded({still}, {}, {}, tree.stub()).out == "plain\n");
  const ProcessResult child =
      run_preloaded({still, "sh", "-c", "echo ${CONVTRACE_CORE:+traced}"}, {}, {}, tree.stub());
  CHECK(child.out == "traced\n");
}

// The loader drops a preload library named by path where a program runs with another's rights.
TEST_CASE("preload: a setuid program is untouched", "[artifact]") {
  const TempDir folder;
  const std::string copy = folder / "setuid";
  std::filesystem::copy_file(program("artifact_dynamic"), copy);
  constexpr uid_t kNobody = 65534;
  if (chown(copy.c_str(), kNobody, kNobody) != 0 || chmod(copy.c_str(), 04755) != 0) {
    WARN("making a setuid program needs more rights: not checked");
    return;
  }
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const FakeTree tree;
  const ProcessResult result = run_preloaded({copy}, {}, {}, tree.stub());
  CHECK(result.exit_code == 0);
  CHECK(result.out == "plain\n");
}

}  // namespace convtrace::test
