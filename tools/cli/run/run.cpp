#include "tools/cli/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "format/settings/controls.h"
#include "format/settings/nearest.h"
#include "format/settings/run_mark.h"
#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/program.h"
#include "tools/cli/base/tree.h"
#include "tools/cli/run/like.h"
#include "tools/common/child.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"

namespace convtrace::tools {
namespace {

constexpr int kCannotExecute = 126, kNotFound = 127;

/// `library` before other tools' preloads; the loader splits at colons and spaces.
std::string preload_list(const std::string& library) {
  const char* old = std::getenv("LD_PRELOAD");
  if (old == nullptr || *old == '\0') return library;
  std::string list = library;
  const std::string_view rest = old;
  for (size_t begin = 0; begin < rest.size();) {
    const size_t end = std::min(rest.find_first_of(": ", begin), rest.size());
    const std::string_view entry = rest.substr(begin, end - begin);
    if (!entry.empty() && entry != library) list.append(":").append(entry);
    begin = end + 1;
  }
  return list;
}

/// Puts the options into this process's environment. @return whether all of them are good.
bool apply_options(const RunOptions& options) {
  bool good = true;
  for (const auto& [spec, text] : options.values) {
    settings::Settings scratch;
    const std::string problem = settings::set_value(*spec, option_name(*spec), text, scratch);
    if (!problem.empty()) complain(MessageId::kBadSetting, problem);
    good = good && problem.empty();
    setenv(std::string(spec->name).c_str(), text.c_str(), 1);
  }
  return good;
}

/// Checks the engine's settings: environment, file and rules. @return nullopt if they are invalid.
std::optional<settings::Settings> check_settings() {
  settings::LoadedControls loaded = settings::load_controls(environ);
  for (const std::string& problem : loaded.problems) complain(MessageId::kBadSetting, problem);
  // The preload library reads it before the settings file is read.
  if (loaded.settings.strict_alloc) setenv("CONVTRACE_STRICT_ALLOC", "1", 1);
  if (!loaded.problems.empty()) return std::nullopt;
  // The command may change its folder before it reads the file.
  if (const std::string& file = loaded.settings.config; !file.empty())
    setenv("CONVTRACE_CONFIG", std::filesystem::absolute(file).c_str(), 1);
  return std::move(loaded.settings);
}

int print_environment(const RunOptions& options) {
  Output output;
  output.line("LD_PRELOAD=" + quote_shell(std::getenv("LD_PRELOAD")));
  output.line(std::string(settings::kAnnounceName) + "=1");
  for (const settings::SettingSpec& spec : settings::setting_table()) {
    const std::string name(spec.name);
    if (const char* value = std::getenv(name.c_str())) output.line(name + '=' + quote_shell(value));
  }
  output.line(shell_line(options.command));
  return static_cast<int>(output.finish(ExitCode::kClean));
}

/// @return an obstacle that makes tracing impossible; "" if there is none.
std::string obstacle(const settings::Settings& settings, const std::vector<std::string>& command) {
  if (!settings.enabled) return "CONVTRACE=0";
  if (settings.mode == settings::Mode::kOff) return "the mode is off";
  const std::string clearing = clearing_option(command);
  if (!clearing.empty())
    return "env " + clearing + " takes LD_PRELOAD away; put `convtrace run --` behind its options";
  const std::string why = preload_obstacle(find_program(command.front()));
  return why.empty() ? why : escape_text(command.front()) + ' ' + why;
}

/// Marks the processes of the command. If it runs inside the command of another `convtrace run`,
/// this one does the reporting.
void announce(const std::string& value) {
  settings::leave_run_mark(std::getenv(settings::kAnnounceName.data()));
  setenv(settings::kAnnounceName.data(), value.c_str(), 1);
}

/// Reports, before the program begins, that its trace cannot be written. A name with % is not
/// checked, since each process has a file of its own.
/// @param like  the trace whose settings were taken; may be empty.
bool has_output(const settings::Settings& settings, const std::string& like) {
  const std::string& output = settings.output;
  std::error_code error;
  if (output.find('%') != std::string::npos) return true;
  if (std::filesystem::exists(output, error)) {
    if (!like.empty() && std::filesystem::equivalent(output, like, error)) {
      complain(MessageId::kIsInput, output, "is the trace of --like, which is not overwritten");
      return false;
    }
    if (settings.overwrite) return true;
    complain(MessageId::kExists,
             escape_text(output) +
                 " exists: choose another --output (%p in it is the process), or say --overwrite");
    return false;
  }
  // A folder of which only the last level is missing is made by the engine. The file of the probe
  // has a name of its own, since other ranks of a job may start with the same output.
  const auto above = [](const std::filesystem::path& path) {
    return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  };
  std::filesystem::path folder = above(output);
  if (!std::filesystem::exists(folder, error)) folder = above(folder);
  const std::string probe = folder / (".convtrace-" + std::to_string(getpid()));
  const int fd = open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) {
    unlink(probe.c_str());
    close(fd);
  } else if (errno != EEXIST) {  // in another container a process may have this number
    complain(MessageId::kNotWritten, output, std::strerror(errno));
    return false;
  }
  return true;
}

}  // namespace

std::string option_name(const settings::SettingSpec& spec) {
  std::string name = "--" + settings::setting_key(spec);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string preload_library() {
  std::string library = in_tree("lib/libconvtrace.so");
  if (library.empty()) {
    complain(MessageId::kPartMissing,
             "libconvtrace.so is not in ../lib of this program; was only a part installed?");
  } else if (library.find_first_of(": ") != std::string::npos) {
    complain(MessageId::kNoPreloadPath,
             "LD_PRELOAD cannot name " + escape_text(library) + ": it takes no spaces and colons");
    library.clear();
  }
  return library;
}

Prepared prepare_run(const RunOptions& options) {
  if (!apply_options(options)) return {ExitCode::kUsage, {}, {}};
  if (!options.like.empty() && !take_settings_of(options.like)) return {ExitCode::kUsage, {}, {}};
  std::optional<settings::Settings> wanted = check_settings();
  if (!wanted) return {ExitCode::kUsage, {}, {}};
  const std::string library = preload_library();
  if (library.empty()) return {ExitCode::kFailure, {}, {}};
  setenv("LD_PRELOAD", preload_list(library).c_str(), 1);
  std::string in_vain = obstacle(*wanted, options.command);
  return {ExitCode::kClean, std::move(in_vain), *std::move(wanted)};
}

int start_prepared(const std::vector<std::string>& command, bool traced) {
  announce(traced ? settings::open_run_mark() : "1");
  const int error = execute(command);
  complain(MessageId::kNotStarted, command[0], std::strerror(error));
  return error == ENOENT ? kNotFound : kCannotExecute;
}

namespace {

/// `convtrace run`: an option for each row of the settings table, then `--` and the command.
struct RunArguments {
  CLI::App* command = nullptr;
  std::vector<std::string> texts{settings::setting_table().size()};
  std::vector<CLI::Option*> options;
  RunOptions result;
};

/// `--overwrite` alone means `--overwrite=1`.
bool is_switch(const settings::SettingSpec& spec) { return spec.values == "0|1"; }

CLI::Option* add_setting(CLI::App& command, const settings::SettingSpec& spec, std::string& text) {
  const std::string name = option_name(spec);
  std::string help(spec.help);
  if (!spec.default_text.empty()) help += " Default: " + std::string(spec.default_text) + '.';
  const bool output = spec.name == "CONVTRACE_OUTPUT";
  CLI::Option* option = command.add_option(output ? "-o," + name : name, text, help);
  if (is_switch(spec)) option->expected(0, 1);
  return option->type_name(std::string(spec.values));
}

void complain_about(const std::string& word) {
  if (!word.starts_with("-"))
    return complain(MessageId::kNoCommand,
                    settings::quoted(word) + ": the command follows after --");
  std::vector<std::string> names{"--dry-run", "--help", "--like"};
  for (const auto& spec : settings::setting_table()) names.push_back(option_name(spec));
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string option = word.substr(0, word.find('='));
  complain(MessageId::kUsage,
           "unknown option " + settings::quoted(option) + "; " +
               settings::suggestion(option, views, "`convtrace run --help` lists them"));
}

/// Executes the command; returns only if that fails, or after printing the environment.
/// @return an ExitCode, or 126 or 127 as shells do when the command cannot be executed or found.
int run_command(const RunOptions& options) {
  const Prepared prepared = prepare_run(options);
  if (prepared.refusal != ExitCode::kClean) return static_cast<int>(prepared.refusal);
  if (options.dry_run) return print_environment(options);
  const bool traced = prepared.in_vain.empty();
  if (traced && !has_output(prepared.settings, options.like))
    return static_cast<int>(ExitCode::kUsage);
  if (!traced) complain(MessageId::kNothingToTrace, "nothing will be traced: " + prepared.in_vain);
  return start_prepared(options.command, traced);
}

int run_arguments(const RunArguments& given, const std::vector<std::string>& words) {
  const auto unknown = given.command->remaining();
  if (!unknown.empty()) {
    complain_about(unknown.front());
    return static_cast<int>(ExitCode::kUsage);
  }
  if (words.empty()) {
    complain(MessageId::kNoCommand, "run needs a command: convtrace run [options] -- CMD...");
    return static_cast<int>(ExitCode::kUsage);
  }
  RunOptions run = given.result;
  const auto table = settings::setting_table();
  for (size_t i = 0; i < table.size(); ++i) {
    if (given.options[i]->count() == 0) continue;
    const bool bare = is_switch(table[i]) && given.texts[i].empty();
    run.values.emplace_back(&table[i], bare ? "1" : given.texts[i]);
  }
  run.command = words;
  return run_command(run);
}

}  // namespace

void add_run(Commands& commands) {
  auto [command, arguments] = commands.add<RunArguments>(
      "run", "Run a program under convtrace: run [options] -- CMD",
      [&commands](const RunArguments& given) { return run_arguments(given, commands.words()); });
  arguments.command = &command;
  const auto table = settings::setting_table();
  for (size_t i = 0; i < table.size(); ++i)
    arguments.options.push_back(add_setting(command, table[i], arguments.texts[i]));
  command
      .add_option("--like", arguments.result.like,
                  "The settings of an earlier run, by its trace, and the steps that it took; "
                  "settings that are given win")
      ->type_name("TRACE");
  command.add_flag("--dry-run", arguments.result.dry_run,
                   "Print the environment and the command only");
  command.allow_extras();
  command.footer("Each option sets the environment variable of the same name, CONVTRACE_...");
}

}  // namespace convtrace::tools
