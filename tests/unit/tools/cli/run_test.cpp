#include "format/settings/settings.h"

#include "tests/support/catch.h"
#include "tests/support/setting_texts.h"
#include "tests/unit/tools/cli/cli.h"

namespace convtrace::test {
namespace {

/// The program in a tree of its own, whose preload library does nothing.
class ToolTree {
 public:
  ToolTree() {
    std::filesystem::create_directories(root_ / "bin");
    std::filesystem::create_directories(root_ / "lib");
    std::filesystem::copy_file(CONVTRACE_PROGRAM, root_ / "bin/convtrace");
    const ProcessResult built =
        run_process({"cc", "-shared", "-x", "c", "/dev/null", "-o", root_ / "lib/libconvtrace.so"});
    REQUIRE(built.exit_code == 0);
  }

  [[nodiscard]] ProcessResult run(std::vector<std::string> arguments,
                                  std::vector<std::string> environment = {}) const {
    arguments.insert(arguments.begin(), {root_ / "bin/convtrace", "run"});
    // A sanitized build would object to any preloaded library.
    environment.push_back("ASAN_OPTIONS=verify_asan_link_order=0");
    return run_process(arguments, {std::move(environment), {"LD_PRELOAD"}, root_.path()});
  }
  [[nodiscard]] std::string library() const { return root_ / "lib/libconvtrace.so"; }
  [[nodiscard]] std::string file(const std::string& name) const { return root_ / name; }

 private:
  TempDir root_;
};

std::string option_of(const settings::SettingSpec& spec) {
  std::string option = "--" + settings::setting_key(spec);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

}  // namespace

TEST_CASE("run: the command gets the library, the settings and its own arguments", "[cli]") {
  const ToolTree tree;
  const ProcessResult result =
      tree.run({"--mode", "hash", "--steps=0|5-8", "--overwrite", "--", "sh", "-c",
                "echo $LD_PRELOAD $CONVTRACE_MODE $CONVTRACE_STEPS $CONVTRACE_OVERWRITE $0 $1",
                "--mode", "--"});
  CHECK(result.out == tree.library() + " hash 0|5-8 1 --mode --\n");
  CHECK(result.err.empty());
}

TEST_CASE("run: the exit code is the command's", "[cli]") {
  const ToolTree tree;
  CHECK(tree.run({"--", "sh", "-c", "exit 42"}).exit_code == 42);
  CHECK(tree.run({"--", "sh", "-c", "kill -9 $$"}).signal == 9);
  CHECK(tree.run({"--", "./nothing"}).exit_code == 127);
  CHECK(tree.run({"--", "/"}).exit_code == 126);
}

TEST_CASE("run: what is wrong with the settings is found before the command starts", "[cli]") {
  const ToolTree tree;
  std::ofstream(tree.file("bad.toml")) << "[[rule]]\nkernal = \"x\"\n";
  std::ofstream(tree.file("upper.toml")) << "CONVTRACE_MODE = 'hash'\n";
  std::ofstream(tree.file("scope.toml")) << "[[rule]]\nscope = \"x\"\noutputs = [0]\n";
  struct Case {
    std::vector<std::string> options, environment;
    std::string says;
  };
  const Case cases[] = {
      {{"--stepz", "3"}, {}, "unknown option \"--stepz\"; the nearest is --steps"},
      {{"--mode=stat"}, {}, "bad value \"stat\" for --mode: the nearest is stats"},
      {{"--mode"}, {}, "--mode"},
      {{},
       {"CONVTRACE_STEP=3"},
       "unknown setting \"CONVTRACE_STEP\"; the nearest is "
       "CONVTRACE_STEPS"},
      {{}, {"CONVTRACE_SAMPLES=x"}, "bad value \"x\" for CONVTRACE_SAMPLES"},
      {{"--config", "bad.toml"}, {}, "bad.toml:2: unknown key \"kernal\""},
      {{"--config", "missing.toml"}, {}, "missing.toml"},
      {{"--config", "/"}, {}, "/: is a folder, not a file of settings"},
      {{"--config", "upper.toml"},
       {},
       "upper.toml:1: unknown key \"CONVTRACE_MODE\"; in a file it is mode"},
      {{"--config", "scope.toml"}, {}, "scope.toml:3: outputs is about a kernel's parameters"},
      {{"stray"}, {}, "\"stray\": the command follows after --"},
  };
  for (const Case& c : cases) {
    std::vector<std::string> arguments = c.options;
    arguments.insert(arguments.end(), {"--", "echo", "started"});
    const ProcessResult result = tree.run(arguments, c.environment);
    CAPTURE(c.says);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(result.err.find(c.says) != std::string::npos);
    CHECK(std::ranges::count(result.err, '\n') == 1);
  }
  CHECK(tree.run({"echo"}).exit_code == 2);
  CHECK(tree.run({"--"}).exit_code == 2);
}

TEST_CASE("run: an option wins over environment and file, for each setting", "[cli]") {
  const ToolTree tree;
  for (const auto& spec : settings::setting_table()) {
    CAPTURE(spec.name);
    if (spec.name == "CONVTRACE_CONFIG") continue;  // below
    const SettingTexts texts = texts_of(spec);
    const std::string name(spec.name), key = settings::setting_key(spec);
    const std::string file = tree.file("c.toml");
    std::ofstream(file) << key << " = '" << texts.other << "'\n";
    const ProcessResult result = tree.run(
        {option_of(spec), std::string(texts.one), "--config", file, "--", "printenv", name},
        {name + '=' + std::string(texts.other)});
    CHECK(result.exit_code == 0);
    CHECK(result.out == std::string(texts.one) + '\n');
  }
  CHECK(tree.run({"--mode", "hash", "--", "printenv", "CONVTRACE_MODE"}, {"CONVTRACE_MODE=junk"})
            .out == "hash\n");
  const std::string one = tree.file("c.toml");
  CHECK(tree.run({"--config", one, "--", "printenv", "CONVTRACE_CONFIG"}, {"CONVTRACE_CONFIG=/x"})
            .out == one + '\n');
}

TEST_CASE("run: -o is --output, for each command that has an output", "[cli]") {
  const ToolTree tree;
  CHECK(tree.run({"-o", "x", "--", "printenv", "CONVTRACE_OUTPUT"}).out == "x\n");
  for (const char* command : {"run", "repeat", "demo", "recover", "strip", "export"}) {
    CAPTURE(command);
    CHECK(convtrace({command, "--help"}).out.find("-o,--output") != std::string::npos);
  }
}

TEST_CASE("usage: an unknown option is named with the nearest, and no argument gives the help",
          "[cli]") {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"info", "--jsn"}, "unknown option \"--jsn\"; the nearest is --json (see --help)"},
      {{"export", "--fromat=npy", "x"}, "\"--fromat\"; the nearest is --format (see --help)"},
      {{"info"}, "TRACE is required (see --help)"}};
  for (const auto& [arguments, says] : cases) {
    CAPTURE(says);
    const ProcessResult result = convtrace(arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.err.starts_with("convtrace: CT-2001 "));
    CHECK(result.err.ends_with(says + "\n"));
  }
  const ProcessResult alone = convtrace({});
  CHECK(alone.exit_code == 2);
  CHECK(alone.out.empty());
  CHECK(alone.err == convtrace({"--help"}).out);
}

TEST_CASE("run: every setting is an option", "[cli]") {
  const ProcessResult help = convtrace({"run", "--help"});
  CHECK(help.exit_code == 0);
  for (const auto& spec : settings::setting_table()) {
    const std::string option = option_of(spec);
    CAPTURE(option);
    CHECK(help.out.find(option + ' ') != std::string::npos);
  }
}

TEST_CASE("run: what cannot be traced is said, and runs", "[cli]") {
  const ToolTree tree;
  const auto says = [&tree](std::vector<std::string> arguments, const std::string& why) {
    arguments.insert(arguments.end(), {"--", "echo", "ran"});
    const ProcessResult result = tree.run(arguments);
    CHECK(result.out == "ran\n");
    CHECK(result.err == "convtrace: CT-2201 nothing will be traced: " + why + '\n');
  };
  says({"--mode", "off"}, "the mode is off");
  says({"--enabled", "0"}, "CONVTRACE=0");
  const std::string program = tree.file("static");
  std::ofstream(tree.file("main.c")) << "int main(void) { return 7; }\n";
  REQUIRE(run_process({"cc", "-static", "-o", program, tree.file("main.c")}).exit_code == 0);
  const ProcessResult result = tree.run({"--", program});
  CHECK(result.exit_code == 7);
  CHECK(result.err.find("is linked statically") != std::string::npos);
}

TEST_CASE("run: another tool's preload library stays, ours is named once and first", "[cli]") {
  const ToolTree tree;
  const std::string other = "/usr/lib/other.so";
  const ProcessResult result =
      tree.run({"--dry-run", "--", "true"}, {"LD_PRELOAD=" + other + " " + tree.library()});
  CHECK(result.out.starts_with("LD_PRELOAD=" + tree.library() + ":" + other + "\n"));
}

TEST_CASE("run --dry-run: prints the settings and the command, and starts nothing", "[cli]") {
  const ToolTree tree;
  const ProcessResult result = tree.run({"--steps", "0|2", "--dry-run", "--", "touch", "a file"});
  CHECK(result.exit_code == 0);
  CHECK(result.out == "LD_PRELOAD=" + tree.library() +
                          "\nCONVTRACE_RUN=1\nCONVTRACE_STEPS='0|2'\ntouch 'a file'\n");
  CHECK_FALSE(std::filesystem::exists(tree.file("a file")));
}

TEST_CASE("run: a tree without the library is one line", "[cli]") {
  const ToolTree tree;
  std::filesystem::remove(tree.library());
  const ProcessResult result = tree.run({"--", "true"});
  CHECK(result.exit_code == 1);
  CHECK(result.err.starts_with("convtrace: CT-2004 libconvtrace.so "));
}

TEST_CASE("convtrace: usage errors are 2, help and version are 0 and data", "[cli]") {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"nothing"}, {"info"}, {"show", "--jsn", "x"}}) {
    const ProcessResult result = convtrace(arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(result.err.starts_with("convtrace: "));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  CHECK(convtrace({"infoo", "x"}).err ==
        "convtrace: CT-2003 unknown command \"infoo\"; the nearest is info\n");
  for (const char* option : {"--help", "--version"}) {
    const ProcessResult result = convtrace({option});
    CHECK(result.exit_code == 0);
    CHECK(result.out.find("convtrace") != std::string::npos);
    CHECK(result.err.empty());
  }
}

}  // namespace convtrace::test
