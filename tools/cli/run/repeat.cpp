#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/trace_input.h"
#include "tools/cli/base/tree.h"
#include "tools/cli/run/repeat_advice.h"
#include "tools/cli/run/run.h"
#include "tools/common/child.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kMostRuns = 100;

/// Runs `body` in a child, which is killed when this process ends, and waits for it. Ctrl-C goes to
/// the child.
/// @return the status of waitpid().
int in_child(const std::function<int()>& body) {
  const auto interrupt = signal(SIGINT, SIG_IGN), quit = signal(SIGQUIT, SIG_IGN);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, interrupt);
    signal(SIGQUIT, quit);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    _exit(body());
  }
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  signal(SIGINT, interrupt);
  signal(SIGQUIT, quit);
  return status;
}

void redirect(const char* path, int flags, int descriptor) {
  const int file = open(path, flags | O_CLOEXEC, 0666);
  if (file >= 0) dup2(file, descriptor);
}

/// "ended with exit code 7"; empty for 0.
std::string failure(int status) {
  if (WIFSIGNALED(status)) {
    return "was ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ')';
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return code == 0 ? "" : "ended with exit code " + std::to_string(code);
}

/// Creates the folder of the runs: it must be new or empty.
/// @return an absolute path; empty after a line on stderr.
fs::path make_folder(const std::string& wanted) {
  std::error_code error;
  for (unsigned number = 1; wanted.empty(); ++number) {
    const fs::path folder = fs::absolute("convtrace-repeat-" + std::to_string(number), error);
    if (fs::create_directory(folder, error)) return folder;
    if (!error) continue;  // it exists already
    complain(MessageId::kNotWritten, folder.string(), error.message());
    return {};
  }
  fs::create_directories(wanted, error);
  if (!error && fs::is_empty(wanted, error) && !error) return fs::absolute(wanted);
  if (error) {
    complain(MessageId::kNotWritten, wanted, error.message());
  } else {
    complain(MessageId::kExists,
             escape_text(wanted) + " is not empty: choose another --output for the runs");
  }
  return {};
}

/// Runs the command several times and compares the traces.
class Repetition {
 public:
  Repetition(fs::path folder, unsigned count) : folder_(std::move(folder)), count_(count) {}

  /// @return whether run `number` ended successfully and left a trace; reports it if not.
  [[nodiscard]] bool run(unsigned number, const std::vector<std::string>& command) const {
    const std::string name = "run " + std::to_string(number);
    std::fprintf(stderr, "convtrace: %s of %u\n", name.c_str(), count_);
    const std::string problem = failure(in_child([&] {
      std::string pattern;  // % is no placeholder in it
      for (const char c : run_folder(number).string())
        pattern += c == '%' ? "%%" : std::string(1, c);
      setenv("CONVTRACE_OUTPUT", (pattern + "/r%r-%p.ctrace").c_str(), 1);
      redirect("/dev/null", O_RDONLY,
               STDIN_FILENO);  // otherwise the first run would read everything
      return start_prepared(command, true);
    }));
    if (!problem.empty()) {
      complain(MessageId::kRepeatUnknown, "not known whether it repeats: " + name + ' ' + problem +
                                              "; what was recorded is in " +
                                              escape_text(folder_.string()));
    } else if (trace_of(number).empty()) {
      complain(MessageId::kRepeatUnknown,
               "not known whether it repeats: " + name + " left no trace");
    }
    return problem.empty() && !trace_of(number).empty();
  }

  /// Compares a run with the first one.
  void compare(unsigned number) {
    const std::string json = file("diff-", number, ".json"), text = file("diff-", number, ".txt");
    const int status = in_child([&] {
      unsetenv("LD_PRELOAD");
      redirect(text.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
      return execute(
          {in_tree("bin/convtrace-diff"), run_folder(1), run_folder(number), "--json", json});
    });
    const Json report = Json::parse(std::ifstream(json), nullptr, false);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == static_cast<int>(DiffExitCode::kUsage) ||
        !report.is_object()) {
      unknown_ = true;
      add("run " + std::to_string(number), "convtrace-diff could not compare it");
    } else {
      judge(number, report);
    }
  }

  [[nodiscard]] ExitCode finish() {
    Output output;
    output.line(differ_    ? "DOES NOT REPEAT"
                : unknown_ ? "NOT KNOWN whether it repeats"
                           : "REPEATS: " + std::to_string(count_) + " runs are equal to the bit");
    std::string others;
    for (unsigned i = 2; i <= count_; ++i) others += ' ' + quote_shell(run_folder(i).string());
    add("kept", escape_text(folder_.string()) + "/run-1 to run-" + std::to_string(count_));
    add("noise",
        "convtrace-diff " + quote_shell(run_folder(1).string()) + " CAND --noise" + others);
    for (const std::string& line : lines_) output.line(line);
    return output.finish(differ_    ? ExitCode::kFailure
                         : unknown_ ? ExitCode::kDamagedInput
                                    : ExitCode::kClean);
  }

 private:
  [[nodiscard]] std::string file(const char* prefix, unsigned number, const char* suffix) const {
    return folder_ / (prefix + std::to_string(number) + suffix);
  }
  [[nodiscard]] fs::path run_folder(unsigned number) const { return file("run-", number, ""); }

  /// @return any trace of the run; empty if it left none.
  [[nodiscard]] fs::path trace_of(unsigned number) const {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(run_folder(number), error))
      if (entry.path().extension() == ".ctrace") return entry.path();
    return {};
  }

  void add(std::string name, const std::string& text) {
    name.resize(8, ' ');
    lines_.push_back(name + text);
  }

  void judge(unsigned number, const Json& report) {
    const Json& first = report.at("first_bit_difference");
    const uint64_t values = report.at("compared").at("values");
    const uint64_t one_sided = report.at("counts").at("unmatched");
    const std::string run = "run " + std::to_string(number);
    if (first.is_object()) {
      add(run, "first differs from run 1 at " + place(first, report.at("ranks").size() > 1));
    } else if (report.at("incomplete") || values == 0) {
      unknown_ = true;
      for (const Json& why : report.at("incomplete_why"))
        add(run, "is not comparable to the end: " + escape_text(why.get<std::string>()));
      if (values == 0) add(run, "has no value that could be compared");
      return;
    } else if (one_sided != 0) {
      add(run, "or run 1 alone has " + counted(one_sided, "value"));
    } else {
      add(run, "is equal in " + counted(values, "value") + " of " +
                   counted(report.at("steps").get<uint64_t>(), "step"));
      return;
    }
    add("", "all of it: " + escape_text(file("diff-", number, ".txt")));
    if (!differ_) advise(report);
    differ_ = true;
  }

  void advise(const Json& report) {
    const auto trace = open_trace(trace_of(1));
    if (trace == nullptr) return;
    for (const std::string& line : repeat_advice(report, trace->meta())) add("try", line);
  }

  static std::string place(const Json& first, bool with_rank) {
    const auto text = [&first](const char* key) {
      return first.at(key).is_string() ? escape_text(first.at(key).get<std::string>()) : "";
    };
    std::string where = with_rank ? "rank " + first.at("rank").dump() + ", " : "";
    if (!first.at("step").is_null()) where += "step " + first.at("step").dump() + ", ";
    where += text("phase") + ", " + (text("scope").empty() ? "root module" : text("scope")) +
             " (call " + first.at("call").dump() + "), ";
    for (const char* key : {"op", "kernel"})
      if (!text(key).empty()) where += std::string(key) + ' ' + text(key) + ", ";
    return where + text("slot");
  }

  const fs::path folder_;
  const unsigned count_;
  bool differ_ = false, unknown_ = false;
  std::vector<std::string> lines_;
};

struct RepeatOptions {
  unsigned count = 2;
  std::string output;
};

ExitCode repeat(const RepeatOptions& options, const std::vector<std::string>& command) {
  if (command.empty()) {
    complain(MessageId::kNoCommand, "repeat needs a command: convtrace repeat [options] -- CMD...");
    return ExitCode::kUsage;
  }
  if (in_tree("bin/convtrace-diff").empty()) {
    complain(MessageId::kPartMissing,
             "convtrace-diff is not beside this program; was only a part installed?");
    return ExitCode::kUsage;
  }
  const Prepared prepared = prepare_run({.values = {}, .command = command});
  if (prepared.refusal != ExitCode::kClean) return ExitCode::kUsage;
  if (!prepared.in_vain.empty()) {
    complain(MessageId::kNothingToTrace, "nothing would be traced: " + prepared.in_vain);
    return ExitCode::kUsage;
  }
  const fs::path folder = make_folder(options.output);
  if (folder.empty()) return ExitCode::kUsage;
  Repetition repetition(folder, options.count);
  for (unsigned i = 1; i <= options.count; ++i)
    if (!repetition.run(i, command)) return ExitCode::kDamagedInput;
  for (unsigned i = 2; i <= options.count; ++i) repetition.compare(i);
  return repetition.finish();
}

}  // namespace

void add_repeat(Commands& commands) {
  auto [command, options] = commands.add<RepeatOptions>(
      "repeat",
      "Run a program several times and say whether it repeats to the bit: repeat [options] -- CMD",
      [&commands](const RepeatOptions& given) { return repeat(given, commands.words()); });
  command.add_option("-n", options.count, "So many runs. Default: 2.")
      ->check(CLI::Range(2U, kMostRuns))
      ->type_name("N");
  command
      .add_option("-o,--output", options.output,
                  "Folder of the runs, new or empty. Default: convtrace-repeat-1, or the next "
                  "number.")
      ->type_name("DIR");
  command.footer(
      "Each run is traced as by `convtrace run`, with the settings of the environment "
      "(CONVTRACE_STEPS, ...). It reads nothing from standard input.\n"
      "Exit codes: 0 all runs are equal to the bit, 1 they are not, 2 usage, 3 not known: a run "
      "failed, left no trace, or is incomplete.");
}

}  // namespace convtrace::tools
