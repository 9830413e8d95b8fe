#include "tools/cli/read_commands.h"

#include <vector>

#include "format/model/events.h"
#include "tools/common/complaints.h"

namespace convtrace::tools {
namespace {

std::vector<std::string> record_kinds() {
  std::vector<std::string> kinds{"meta"};
  for (size_t i = 0; i < std::variant_size_v<format::Event>; ++i) {
    kinds.emplace_back(format::event_name(i));
  }
  return kinds;
}

}  // namespace

ReadCommands::ReadCommands(CLI::App& app) {
  add(app, info_, "info", "What a trace holds, in which state it is, and what it cost",
      "One JSON object");
  add(app, show_, "show", "The records of a trace, one a line", "One JSON object a line");
  add(app, findings_, "findings", "What convtrace found wrong, with the stacks",
      "One JSON object a line");
  add(app, recover_, "recover", "Write what is intact of a trace into a new, closed one",
      "The report as one JSON object");
  add(app, strip_, "strip",
      "Write a trace anew without raw values, stacks, command line, host and paths",
      "The report as one JSON object");
  strip_.app->footer(
      "What stays: names of modules, kernels and parameters, shapes, statistics and hashes of "
      "tensors, addresses, versions and switches. Names that you gave your modules are not "
      "hidden.");
  add(app, verify_, "verify", "Check every checksum and every rule of the format",
      "One JSON object");
  info_.app->add_flag("--all", info_all_, "Every fact, also settings that have their defaults");
  add_show_options();
  findings_.app->add_flag("--replay", findings_options_.replay,
                          "Judge the recorded allocations, launches and synchronisations anew");
  findings_.app->add_flag("--brief", findings_options_.brief,
                          "The first finding alone, as JSON of at most 2 kB");
  findings_.app->add_flag("--strict", findings_options_.strict, "End with 4 for a warning, too");
  add_recover_options();
  add_strip_options();
}

void ReadCommands::add(CLI::App& app, Command& command, const char* name, const char* help,
                       const char* json_help) {
  command.app = app.add_subcommand(name, help);
  command.app->add_option("TRACE", command.path, "A .ctrace file")->required();
  command.app->add_flag("--json", command.json, json_help);
}

void ReadCommands::add_show_options() {
  show_.app->add_option("--records", show_options_.records, "Only these kinds, comma-separated")
      ->delimiter(',')
      ->type_name("KIND,...")
      ->check(CLI::IsMember(record_kinds()));
  show_.app->add_option("--steps", steps_, "Only these steps")
      ->type_name("0|5-8|100-120,every=50|all");
  CLI::Option* records = show_.app->get_option("--records");
  CLI::Option* density = show_.app->add_flag(
      "--density", density_,
      "Instead: how much of what embeddings with a padding index and losses with an ignored index "
      "take is padding");
  CLI::Option* memory = show_.app->add_flag(
      "--memory", memory_,
      "Instead: MiB that the framework's allocator has given out and holds, before and after "
      "forward and backward of each step");
  CLI::Option* norms = show_.app->add_flag(
      "--norms", norms_,
      "Instead: loss, norm of all gradients, largest norm of the gradient of one weight and loss "
      "scale of each step; with --json the norm of each weight");
  CLI::Option* nan = show_.app->add_flag("--nan", nan_,
                                         "Instead: the first NaN or infinity that has a "
                                         "consequence, who made it and of what, the last "
                                         "values before it, early signs, and whose memory it was");
  CLI::Option* follow =
      show_.app->add_flag("--follow", show_options_.follow,
                          "Go on while the trace is being written; ends when it is closed (0), its "
                          "process is gone (3), or with Ctrl-C (0)");
  density->excludes(memory, norms, nan, records, follow);
  memory->excludes(norms, nan, records, follow);
  norms->excludes(nan, records, follow);
  nan->excludes(records, follow);
}

void ReadCommands::add_recover_options() {
  recover_.app->add_option("-o,--output", recover_options_.output, "The new trace")
      ->required()
      ->type_name("OUT");
  recover_.app->add_flag("--overwrite", recover_options_.overwrite, "Replace OUT if it exists");
}

void ReadCommands::add_strip_options() {
  strip_.app->add_option("-o,--output", strip_options_.output, "The new trace")
      ->required()
      ->type_name("OUT");
  strip_.app->add_flag("--overwrite", strip_options_.overwrite, "Replace OUT if it exists");
  strip_.app->add_flag("--hashes", strip_options_.hashes_only,
                       "Leave the statistics out, too: what is left only tells equal from unequal");
}

ExitCode ReadCommands::run() {
  if (info_.app->parsed()) return show_info(info_.path, info_.json, info_all_);
  if (findings_.app->parsed()) {
    findings_options_.path = findings_.path;
    findings_options_.json = findings_.json;
    return show_findings(findings_options_);
  }
  if (verify_.app->parsed()) return verify_trace(verify_.path, verify_.json);
  if (recover_.app->parsed()) {
    recover_options_.path = recover_.path;
    recover_options_.json = recover_.json;
    return recover_trace(recover_options_);
  }
  if (strip_.app->parsed()) {
    strip_options_.path = strip_.path;
    strip_options_.json = strip_.json;
    return strip_trace(strip_options_);
  }
  return run_show();
}

ExitCode ReadCommands::run_show() {
  const auto* steps_spec = settings::find_setting("CONVTRACE_STEPS");
  settings::Settings parsed;
  const std::string problem = settings::set_value(*steps_spec, "--steps", steps_, parsed);
  if (!problem.empty()) {
    complain(MessageId::kUsage, problem);
    return ExitCode::kUsage;
  }
  show_options_.path = show_.path;
  show_options_.json = show_.json;
  show_options_.steps = parsed.steps;
  if (density_) return show_density(show_options_);
  if (memory_) return show_memory(show_options_);
  if (norms_) return show_norms(show_options_);
  if (nan_) return show_nan(show_options_);
  return show_records(show_options_);
}

}  // namespace convtrace::tools
