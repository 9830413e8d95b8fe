#include <filesystem>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/new_file.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_json.h"
#include "tools/cli/base/trace_input.h"
#include "tools/cli/rewrite/recovery.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

namespace fs = std::filesystem;

Json report_json(const CopyOptions& options, const reader::TraceContainer& trace,
                 const Recovered& recovered) {
  const reader::RecordCounts counts = trace.counts();
  Json json;
  json["output"] = escape_text(options.output);
  json["state"] = to_string(trace.state(recovered.events_without_definition));
  json["chunks"] = recovered.chunks;
  json["events"] = recovered.events;
  json["bytes"] = recovered.bytes;
  Json& lost = json["lost"] = Json::object();
  lost["records"] = counts.lost_records;
  lost["events"] = recovered.missing_events;
  lost["events_without_definition"] = recovered.events_without_definition;
  lost["damaged_bytes"] = counts.skipped_bytes;
  lost["cut_bytes"] = counts.cut_bytes;
  json["problems"] = problems_json(trace.problems().kept());
  return json;
}

void print_report(Output& output, const CopyOptions& options, const reader::TraceContainer& trace,
                  const Recovered& recovered) {
  const reader::RecordCounts counts = trace.counts();
  output.line(escape_text(options.output) + ": " + counted(recovered.events, "event") + " in " +
              counted(recovered.chunks, "chunk") + ", " + counted(recovered.bytes, "byte"));
  const auto lost = [&output](uint64_t count, std::string_view noun, const char* why) {
    if (count > 0) output.line("lost: " + counted(count, noun) + why);
  };
  lost(counts.lost_records, "record", ", damaged or gone");
  lost(recovered.missing_events, "event", " of damaged records");
  lost(recovered.events_without_definition, "event", " whose definition is gone");
  lost(counts.skipped_bytes, "byte", " damaged");
  lost(counts.cut_bytes, "byte", " at the end, cut short");
}

ExitCode recover_trace(const CopyOptions& options) {
  std::error_code ignored;
  if (fs::equivalent(options.path, options.output, ignored)) {
    complain(MessageId::kIsInput, options.output,
             "is the damaged trace itself, which is never changed");
    return ExitCode::kUsage;
  }
  auto source = reader::FileSource::open(options.path);
  auto opened = source.ok() ? reader::TraceContainer::open(std::move(source).value(),
                                                           reader::OpenPolicy::kIndexOrScan)
                            : source.status();
  if (!opened.ok()) {
    complain(MessageId::kUnreadable, options.path, status_text(opened.status()));
    return ExitCode::kFailure;
  }
  reader::TraceContainer& trace = *opened.value();
  NewFile file(options.output, options.overwrite);
  auto sink = file.create();
  if (sink == nullptr) return ExitCode::kFailure;
  const Result<Recovered> recovered = recover(trace, std::move(sink), decode_threads());
  if (!recovered.ok()) {
    complain(MessageId::kNotWritten, options.output, status_text(recovered.status()));
    return ExitCode::kFailure;
  }
  if (!file.keep()) return ExitCode::kFailure;
  Output output;
  if (options.json) {
    output.line(dump_json(report_json(options, trace, recovered.value())));
  } else {
    print_report(output, options, trace, recovered.value());
  }
  return output.finish(
      report_state(trace, recovered.value().events_without_definition, options.path));
}

}  // namespace

void add_recover(Commands& commands) {
  auto [command, options] = commands.add<CopyOptions>(
      "recover", "Write what is intact of a trace into a new, closed one", recover_trace);
  add_copy_options(command, options);
}

}  // namespace convtrace::tools
