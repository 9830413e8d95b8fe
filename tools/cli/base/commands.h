#pragma once
/// @file commands.h
/// The commands of `convtrace`, and the options that several of them have.
///
/// Errors:   a line on stderr and an exit code of exit_code.h. Data goes to standard output.

#include <string>
#include <vector>

#include "format/settings/settings.h"
#include "tools/common/commands.h"

namespace convtrace::tools {

/// Runs another program under the preload library.
void add_run(Commands& commands);
/// Runs a program several times under the preload library and reports whether the runs are equal to
/// the bit. Each writes into a folder of its own; convtrace-diff compares the first with the others.
void add_repeat(Commands& commands);
/// Trains a small GPT with a correct and with a broken custom op, and compares.
void add_demo(Commands& commands);
/// `path` and `env`: the preload library's path, and the text by which a shell, a scheduler or a
/// container puts it into the environment of a program.
void add_preload_commands(Commands& commands);
/// Reports whether tracing works on this machine, and what to do if not.
void add_doctor(Commands& commands);

void add_info(Commands& commands);
void add_show(Commands& commands);
/// Prints findings by the faults they are about, and how many there are.
void add_findings(Commands& commands);
/// Checks every byte of a trace.
void add_verify(Commands& commands);

/// Copies the intact parts of a trace into a new trace.
void add_recover(Commands& commands);
/// Copies a trace without the contents that should not be given to others.
void add_strip(Commands& commands);
/// Converts traces to formats of other programs.
void add_export(Commands& commands);
/// Converts a MindSpore Dump configuration to settings and rules.
void add_config(Commands& commands);

/// The options of every command about one trace.
struct TraceOptions {
  std::string path;
  bool json = false;
};
void add_trace_options(CLI::App& command, TraceOptions& options, const char* json_help);

/// The options of a command that makes a new trace of one.
struct CopyOptions : TraceOptions {
  std::string output;
  bool overwrite = false;
};
void add_copy_options(CLI::App& command, CopyOptions& options);

struct ShowOptions : TraceOptions {
  std::vector<std::string> records;  ///< kinds to show, as in `record`; empty: all
  std::string steps_text = "all";
  settings::StepSet steps;  ///< of `steps_text`
  bool density = false, memory = false, norms = false, nan = false;
  bool follow = false;  ///< go on while the trace is being written
};
/// Prints how much of the input of each embedding and loss is padding.
[[nodiscard]] ExitCode show_density(const ShowOptions& options);
/// Prints the memory of the framework's allocator at the ends of forward and backward of each step.
[[nodiscard]] ExitCode show_memory(const ShowOptions& options);
/// Prints loss and gradient norms of each step, by weight and in all.
[[nodiscard]] ExitCode show_norms(const ShowOptions& options);
/// Finds the origin of the first value that is not finite.
[[nodiscard]] ExitCode show_nan(const ShowOptions& options);

}  // namespace convtrace::tools
