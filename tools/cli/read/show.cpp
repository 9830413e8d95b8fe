#include <algorithm>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_json.h"
#include "tools/cli/base/record_text.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/live_wait.h"

namespace convtrace::tools {
namespace {

bool wants(const ShowOptions& options, std::string_view record) {
  return options.records.empty() ||
         std::find(options.records.begin(), options.records.end(), record) != options.records.end();
}

void show_head(Output& output, const ShowOptions& options, const reader::TraceReader& trace) {
  if (!options.json) output.line(event_line_header());
  if (options.json && wants(options, "meta")) {
    output.line(dump_json(meta_record_json(trace.meta())));
  }
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

}  // namespace

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

}  // namespace convtrace::tools
