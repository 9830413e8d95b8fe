#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "format/settings/nearest.h"
#include "format/settings/settings.h"
#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/tree.h"
#include "tools/cli/run/settings_page.h"
#include "tools/common/child.h"
#include "tools/common/complaints.h"
#include "tools/common/reference.h"
#include "tools/report/help.h"

namespace convtrace::tools {
namespace {

constexpr int kUsage = static_cast<int>(ExitCode::kUsage);

constexpr const char* kExitCodes =
    "Exit codes: 0 clean, 1 failure, 2 usage, 3 the trace is unclosed or damaged (what could be "
    "read was shown), 4 `findings` found an error. `run` ends with the command's own, `diff` with "
    "convtrace-diff's; `repeat`: 1 the runs are not equal, 3 not known.";

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

struct ExpectOptions {
  const CLI::App* command = nullptr;
};

/// Words that expecting() does not take are a wrong usage.
void add_expect(Commands& commands) {
  auto [command, options] = commands.add<ExpectOptions>(
      "expect",
      "Whether a change kept its contract: expect FILE BASE CAND, or expect --init BASE CAND",
      [](const ExpectOptions& given) {
        std::fputs(given.command->help().c_str(), stderr);
        return ExitCode::kUsage;
      });
  options.command = &command;
  command.footer(
      "FILE says what must agree, must differ, must run (docs/expect.md); --init prints one that "
      "two runs keep. Takes the options of convtrace-diff behind these words. Exit codes: 0 kept, "
      "1 broken, 2 usage, 3 cannot tell.");
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

/// Examples of a command that can be typed.
struct Examples {
  const char* command;
  std::initializer_list<const char*> lines;
};

/// Lays out the help of all commands. @param app  with all commands.
void lay_out_commands(CLI::App& app) {
  const Examples all[] = {
      {"run",
       {"convtrace run -o base.ctrace -- python train.py",
        "convtrace run --overhead 5% -- torchrun --nproc-per-node 4 train.py",
        "convtrace run -o new.ctrace --like base.ctrace -- python train.py"}},
      {"demo", {"convtrace demo", "convtrace demo -o /tmp/demo"}},
      {"path", {"LD_PRELOAD=$(convtrace path) python train.py"}},
      {"env",
       {"eval \"$(convtrace env --shell)\"; python train.py", "convtrace env --slurm",
        "convtrace env --k8s"}},
      {"info",
       {"convtrace info base.ctrace", "convtrace info --all base.ctrace",
        "convtrace info --json base.ctrace"}},
      {"show",
       {"convtrace show --norms base.ctrace", "convtrace show --nan base.ctrace",
        "convtrace show --records stats --steps 0-2 base.ctrace"}},
      {"findings",
       {"convtrace findings base.ctrace", "convtrace findings --strict base.ctrace",
        "convtrace findings --json base.ctrace"}},
      {"recover", {"convtrace recover -o whole.ctrace killed.ctrace"}},
      {"strip",
       {"convtrace strip -o to-send.ctrace base.ctrace",
        "convtrace strip --hashes -o to-send.ctrace base.ctrace"}},
      {"verify", {"convtrace verify base.ctrace"}},
      {"check",
       {"convtrace check base.ctrace", "convtrace check --html check.html base.ctrace",
        "convtrace check --only nan,blow-up base.ctrace"}},
      {"weights",
       {"convtrace weights trainer.ctrace engine.ctrace",
        "convtrace weights --step-b start trainer.ctrace resumed.ctrace",
        "convtrace weights --map names.toml trainer engine"}},
      {"origin",
       {"convtrace origin run", "convtrace origin --html origin.html run",
        "convtrace origin --brief run"}},
      {"repeat",
       {"convtrace repeat -- python train.py", "convtrace repeat -o runs -- python train.py",
        "convtrace repeat -n 3 -- python train.py"}},
      {"diff",
       {"convtrace diff base.ctrace new.ctrace",
        "convtrace diff base.ctrace new.ctrace --html diff.html", "convtrace-diff --help"}},
      {"expect",
       {"convtrace expect --init base.ctrace new.ctrace >expect.toml",
        "convtrace expect expect.toml base.ctrace new.ctrace",
        "convtrace expect expect.toml base.ctrace new.ctrace --brief"}},
      {"export",
       {"convtrace export --format parquet -o values base.ctrace",
        "convtrace export --format tensorboard -o board base.ctrace",
        "convtrace export --format npy -o tensors base.ctrace"}},
      {"doctor", {"convtrace doctor", "convtrace doctor -- python train.py"}},
      {"config", {"convtrace config --from-mindspore dump.json"}},
  };
  report::lay_out_help(app);
  for (const Examples& one : all) report::add_examples(*app.get_subcommand(one.command), one.lines);
  report::add_examples(
      app, {"convtrace run -o base.ctrace -- python train.py", "convtrace check base.ctrace",
            "convtrace diff base.ctrace new.ctrace"});
}

/// `words` are the arguments in reverse, as CLI11 wants them, up to `--`; `command` is the rest.
int run_program(std::vector<std::string> words, std::vector<std::string> command) {
  CLI::App app("convtrace: what a training run computed, and where memory was reused too early",
               "convtrace");
  app.set_version_flag("--version", "convtrace " CONVTRACE_VERSION);
  app.require_subcommand(1);
  app.failure_message(usage_message);
  app.footer(kExitCodes);
  Commands commands(app, std::move(command));
  add_run(commands);
  add_demo(commands);
  add_preload_commands(commands);
  add_info(commands);
  add_show(commands);
  add_findings(commands);
  add_recover(commands);
  add_strip(commands);
  add_verify(commands);
  check::add_check(commands);
  weights::add_weights(commands);
  origin::add_origin(commands);
  add_repeat(commands);
  app.add_subcommand("diff", "Name the first divergence of two runs: convtrace-diff BASE CAND")
      ->footer("Takes the options of convtrace-diff; see there.");
  add_expect(commands);
  add_export(commands);
  add_doctor(commands);
  add_config(commands);
  lay_out_commands(app);
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
  return commands.run();
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
