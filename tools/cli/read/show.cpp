#include <algorithm>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_json.h"
#include "tools/cli/base/record_text.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/complaints.h"
#include "tools/common/live_wait.h"

namespace convtrace::tools {
namespace {

std::vector<std::string> record_kinds() {
  std::vector<std::string> kinds{"meta"};
  for (size_t i = 0; i < std::variant_size_v<format::Event>; ++i)
    kinds.emplace_back(format::event_name(i));
  return kinds;
}

bool wants(const ShowOptions& options, std::string_view record) {
  return options.records.empty() ||
         std::find(options.records.begin(), options.records.end(), record) != options.records.end();
}

void show_head(Output& output, const ShowOptions& options, const reader::TraceReader& trace) {
  if (!options.json) output.line(event_line_header());
  if (options.json && wants(options, "meta"))
    output.line(dump_json(meta_record_json(trace.meta())));
}

/// Prints the events that are there. @return whether to continue.
bool show_events(Output& output, const ShowOptions& options, reader::TraceReader& trace) {
  const format::TraceMeta& meta = trace.meta();
  const auto goes_on = [&output] { return output.usable() && !LiveWait::interrupted(); };
  const format::Event* event = nullptr;
  while (goes_on() && (event = trace.next()) != nullptr) {
    if (!wants(options, format::event_name(event->index()))) continue;
    if (!options.steps.contains(format::header_of(*event).step)) continue;
    output.line(options.json ? dump_json(event_json(*event, trace.definitions(), meta.rank))
                             : event_line(*event, trace.definitions(), meta.start_monotonic_ns));
  }
  return goes_on();
}

/// Prints a trace while it is written, until it is closed, its writer has ended, or Ctrl-C.
ExitCode follow(Output& output, const ShowOptions& options, reader::TraceReader& trace) {
  LiveWait live;
  while (trace.counts().records == 0 && !live.writer_gone() && !LiveWait::interrupted()) {
    live.wait(trace.meta());
    trace.refresh(false);
  }
  show_head(output, options, trace);
  for (bool ended = false; show_events(output, options, trace);) {
    output.flush();
    if (ended) return output.finish(report_state(trace, options.path));
    if (!trace.container().closed()) live.wait(trace.meta());
    ended = trace.container().closed() || live.writer_gone();
    trace.refresh(ended);
  }
  return output.finish(ExitCode::kClean);
}

ExitCode show_records(const ShowOptions& options) {
  const auto policy = options.follow ? reader::OpenPolicy::kLive : reader::OpenPolicy::kIndexOrScan;
  const auto trace = open_trace(options.path, policy);
  if (trace == nullptr) return ExitCode::kFailure;
  Output output;
  if (options.follow) return follow(output, options, *trace);
  show_head(output, options, *trace);
  (void)show_events(output, options, *trace);
  return output.finish(report_state(*trace, options.path));
}

ExitCode show(ShowOptions options) {
  settings::Settings parsed;
  const std::string problem = settings::set_value(*settings::find_setting("CONVTRACE_STEPS"),
                                                  "--steps", options.steps_text, parsed);
  if (!problem.empty()) {
    complain(MessageId::kUsage, problem);
    return ExitCode::kUsage;
  }
  options.steps = parsed.steps;
  if (options.density) return show_density(options);
  if (options.memory) return show_memory(options);
  if (options.norms) return show_norms(options);
  if (options.nan) return show_nan(options);
  return show_records(options);
}

}  // namespace

void add_show(Commands& commands) {
  auto [command, options] =
      commands.add<ShowOptions>("show", "The records of a trace, one a line", show);
  add_trace_options(command, options, "One JSON object a line");
  command.add_option("--records", options.records, "Only these kinds, comma-separated")
      ->delimiter(',')
      ->type_name("KIND,...")
      ->check(CLI::IsMember(record_kinds()));
  command.add_option("--steps", options.steps_text, "Only these steps")
      ->type_name("0|5-8|100-120,every=50|all");
  CLI::Option* records = command.get_option("--records");
  CLI::Option* density = command.add_flag(
      "--density", options.density,
      "Instead: how much of what embeddings with a padding index and losses with an ignored index "
      "take is padding");
  CLI::Option* memory = command.add_flag(
      "--memory", options.memory,
      "Instead: MiB that the framework's allocator has given out and holds, before and after "
      "forward and backward of each step");
  CLI::Option* norms = command.add_flag(
      "--norms", options.norms,
      "Instead: loss, norm of all gradients, largest norm of the gradient of one weight and loss "
      "scale of each step; with --json the norm of each weight");
  CLI::Option* nan = command.add_flag("--nan", options.nan,
                                      "Instead: the first NaN or infinity that has a "
                                      "consequence, who made it and of what, the last "
                                      "values before it, early signs, and whose memory it was");
  CLI::Option* follow =
      command.add_flag("--follow", options.follow,
                       "Go on while the trace is being written; ends when it is closed (0), its "
                       "process is gone (3), or with Ctrl-C (0)");
  density->excludes(memory, norms, nan, records, follow);
  memory->excludes(norms, nan, records, follow);
  norms->excludes(nan, records, follow);
  nan->excludes(records, follow);
}

}  // namespace convtrace::tools
