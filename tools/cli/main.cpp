#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "format/settings/nearest.h"
#include "format/settings/settings.h"
#include "tools/check/command.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/tree.h"
#include "tools/cli/doctor/doctor.h"
#include "tools/cli/read_commands.h"
#include "tools/cli/rewrite/export.h"
#include "tools/cli/rewrite/mindspore.h"
#include "tools/cli/run/demo.h"
#include "tools/cli/run/preload_commands.h"
#include "tools/cli/run/repeat.h"
#include "tools/cli/run/run.h"
#include "tools/cli/run/settings_page.h"
#include "tools/common/child.h"
#include "tools/common/complaints.h"
#include "tools/common/reference.h"
#include "tools/common/usage.h"
#include "tools/origin/command.h"
#include "tools/weights/command.h"

namespace convtrace::tools {
namespace {

constexpr int kUsage = static_cast<int>(ExitCode::kUsage);

constexpr const char* kExitCodes =
    "Exit codes: 0 clean, 1 failure, 2 usage, 3 the trace is unclosed or damaged (what could be "
    "read was shown), 4 `findings` found an error. `run` ends with the command's own, `diff` with "
    "convtrace-diff's; `repeat`: 1 the runs are not equal, 3 not known.";

/// `convtrace run`: an option for each row of the settings table, then `--` and the command.
class RunArguments {
 public:
  explicit RunArguments(CLI::App& app)
      : command_(app.add_subcommand("run", "Run a program under convtrace: run [options] -- CMD")),
        texts_(settings::setting_table().size()) {
    const auto table = settings::setting_table();
    for (size_t i = 0; i < table.size(); ++i) options_.push_back(add(table[i], texts_[i]));
    command_
        ->add_option(
            "--like", result_.like,
            "The settings of an earlier run, by its trace, and the steps that it took; settings "
            "that are given win")
        ->type_name("TRACE");
    command_->add_flag("--dry-run", result_.dry_run, "Print the environment and the command only");
    command_->allow_extras();
    command_->footer("Each option sets the environment variable of the same name, CONVTRACE_...");
  }

  [[nodiscard]] bool chosen() const { return command_->parsed(); }

  /// @param command what followed `--`.
  [[nodiscard]] int run(std::vector<std::string> command) {
    const auto unknown = command_->remaining();
    if (!unknown.empty()) return complain_about(unknown.front());
    if (command.empty()) {
      complain(MessageId::kNoCommand, "run needs a command: convtrace run [options] -- CMD...");
      return kUsage;
    }
    const auto table = settings::setting_table();
    for (size_t i = 0; i < table.size(); ++i) {
      if (options_[i]->count() == 0) continue;
      const bool bare = is_switch(table[i]) && texts_[i].empty();
      result_.values.emplace_back(&table[i], bare ? "1" : texts_[i]);
    }
    result_.command = std::move(command);
    return run_command(result_);
  }

 private:
  /// `--overwrite` alone means `--overwrite=1`.
  static bool is_switch(const settings::SettingSpec& spec) { return spec.values == "0|1"; }

  CLI::Option* add(const settings::SettingSpec& spec, std::string& text) {
    const std::string name = option_name(spec);
    std::string help(spec.help);
    if (!spec.default_text.empty()) help += " Default: " + std::string(spec.default_text) + '.';
    const bool output = spec.name == "CONVTRACE_OUTPUT";
    CLI::Option* option = command_->add_option(output ? "-o," + name : name, text, help);
    if (is_switch(spec)) option->expected(0, 1);
    return option->type_name(std::string(spec.values));
  }

  [[nodiscard]] int complain_about(const std::string& word) const {
    if (!word.starts_with("-")) {
      complain(MessageId::kNoCommand, settings::quoted(word) + ": the command follows after --");
      return kUsage;
    }
    std::vector<std::string> names{"--dry-run", "--help", "--like"};
    for (const auto& spec : settings::setting_table()) names.push_back(option_name(spec));
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string option = word.substr(0, word.find('='));
    complain(MessageId::kUsage,
             "unknown option " + settings::quoted(option) + "; " +
                 settings::suggestion(option, views, "`convtrace run --help` lists them"));
    return kUsage;
  }

  CLI::App* command_;
  std::vector<std::string> texts_;
  std::vector<CLI::Option*> options_;
  RunOptions result_;
};

/// `convtrace doctor [--json] [-- CMD]`.
class DoctorArguments {
 public:
  explicit DoctorArguments(CLI::App& app)
      : command_(
            app.add_subcommand("doctor", "Say whether tracing will work here: doctor [-- CMD]")) {
    command_->add_flag("--json", options_.json, "One JSON object");
    command_->footer("Exit code: 0, or 1 if something will not work.");
  }

  [[nodiscard]] bool chosen() const { return command_->parsed(); }

  [[nodiscard]] ExitCode run(std::vector<std::string> command) {
    options_.command = std::move(command);
    return run_doctor(options_);
  }

 private:
  CLI::App* command_;
  DoctorOptions options_;
};

/// `convtrace config --from-mindspore FILE`.
class ConfigArguments {
 public:
  explicit ConfigArguments(CLI::App& app)
      : command_(app.add_subcommand("config", "Settings made of other programs' configurations")) {
    command_
        ->add_option("--from-mindspore", dump_,
                     "A MindSpore Dump configuration: prints the TOML file that asks for the same")
        ->required()
        ->type_name("FILE");
  }

  [[nodiscard]] bool chosen() const { return command_->parsed(); }
  [[nodiscard]] ExitCode run() const { return print_mindspore_config(dump_); }

 private:
  CLI::App* command_;
  std::string dump_;
};

/// `convtrace diff ...`: replaces this process by convtrace-diff with the same arguments. @return
/// only if that fails.
int become_diff(std::vector<std::string> arguments) {
  arguments.front() = in_tree("bin/convtrace-diff");
  if (!arguments.front().empty()) (void)execute(arguments);
  complain(MessageId::kPartMissing,
           "convtrace-diff is not beside this program; was only a part installed?");
  return kUsage;  // 1 would mean that the runs diverge
}

/// `convtrace expect FILE BASE CAND ...` and `convtrace expect --init BASE CAND ...` as the arguments
/// of `convtrace diff`. @return empty for other words, which are about the command itself.
std::vector<std::string> expecting(const std::vector<std::string>& words) {
  if (words.size() < 4 || words.front() != "expect") return {};
  std::vector<std::string> all{"diff"};
  if (words[1] == "--init") {
    all.emplace_back("--expect-init");
  } else {
    all.insert(all.end(), {"--expect", words[1]});
  }
  all.insert(all.end(), words.begin() + 2, words.end());
  return all;
}

/// For the build: prints documents that are generated from the command line and the settings.
int generate(const CLI::App& app, const std::string& what) {
  Output output;
  if (what == "man") {
    output.line(manual_page(app, settings_sections()));
  } else if (what == "bash") {
    output.line(bash_completion(app));
  } else if (what == "settings") {
    output.line(settings_page());
  } else {
    complain(MessageId::kUsage, "--generate takes man, bash or settings");
    return kUsage;
  }
  return static_cast<int>(output.finish(ExitCode::kClean));
}

/// @return a message if the first word is no command of convtrace; "" if it is one, or an option.
std::string unknown_command(CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty() || words.back().starts_with("-")) return "";
  const std::string& word = words.back();
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return "";
  const std::vector<std::string_view> views(names.begin(), names.end());
  return "unknown command " + settings::quoted(word) + "; " +
         settings::suggestion(word, views, "`convtrace --help` lists them");
}

/// `words` are the arguments in reverse, as CLI11 wants them, up to `--`; `command` is the rest.
int run_program(std::vector<std::string> words, std::vector<std::string> command) {
  CLI::App app("convtrace: what a training run computed, and where memory was reused too early",
               "convtrace");
  app.set_version_flag("--version", "convtrace " CONVTRACE_VERSION);
  app.require_subcommand(1);
  app.failure_message(usage_message);
  app.footer(kExitCodes);
  RunArguments run(app);
  const DemoCommand demo(app);
  const PreloadCommands preload(app);
  ReadCommands read(app);
  const check::CheckCommand checking(app);
  const weights::WeightsCommand comparing(app);
  const origin::OriginCommand tracking(app);
  RepeatCommand repeat(app);
  app.add_subcommand("diff", "Name the first divergence of two runs: convtrace-diff BASE CAND")
      ->footer("Takes the options of convtrace-diff; see there.");
  CLI::App* const expect = app.add_subcommand(
      "expect",
      "Whether a change kept its contract: expect FILE BASE CAND, or expect --init BASE CAND");
  expect->footer(
      "FILE says what must agree, must differ, must run (docs/expect.md); --init prints one that "
      "two runs keep. Takes the options of convtrace-diff behind these words. Exit codes: 0 kept, "
      "1 broken, 2 usage, 3 cannot tell.");
  const ExportCommand exporting(app);
  DoctorArguments doctor(app);
  ConfigArguments config(app);
  if (words.size() == 2 && words.back() == "--generate") return generate(app, words.front());
  if (const std::string problem = unknown_command(app, words); !problem.empty()) {
    complain(MessageId::kUnknownCommand, problem);
    return kUsage;
  }
  if (words.empty()) {
    std::fputs(app.help().c_str(), stderr);
    return kUsage;
  }
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }

  if (expect->parsed()) {
    std::fputs(expect->help().c_str(), stderr);
    return kUsage;
  }
  if (demo.chosen()) return static_cast<int>(demo.run());
  if (preload.chosen()) return static_cast<int>(preload.run());
  if (run.chosen()) return run.run(std::move(command));
  if (repeat.chosen()) return static_cast<int>(repeat.run(command));
  if (doctor.chosen()) return static_cast<int>(doctor.run(std::move(command)));
  if (config.chosen()) return static_cast<int>(config.run());
  if (checking.chosen()) return static_cast<int>(checking.run());
  if (comparing.chosen()) return static_cast<int>(comparing.run());
  if (tracking.chosen()) return static_cast<int>(tracking.run());
  if (exporting.chosen()) return static_cast<int>(exporting.run());
  return static_cast<int>(read.run());
}

}  // namespace
}  // namespace convtrace::tools

int main(int argc, char** argv) {
  const std::vector<std::string> all(argv + 1, argv + argc);
  if (!all.empty() && all.front() == "diff") return convtrace::tools::become_diff(all);
  if (const auto words = convtrace::tools::expecting(all); !words.empty())
    return convtrace::tools::become_diff(words);
  // Words after `--` belong to the command, even if they look like options.
  const auto split = std::find(all.begin(), all.end(), "--");
  std::vector<std::string> words(all.begin(), split);
  std::reverse(words.begin(), words.end());
  const bool takes_command =
      !all.empty() && (all.front() == "run" || all.front() == "repeat" || all.front() == "doctor");
  if (!takes_command) words.assign(all.rbegin(), all.rend());
  return convtrace::tools::run_program(std::move(words),
                                       takes_command && split != all.end()
                                           ? std::vector<std::string>(split + 1, all.end())
                                           : std::vector<std::string>());
}
