#include <filesystem>

#include "tools/cli/base/commands.h"
#include "tools/cli/base/new_file.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/trace_input.h"
#include "tools/cli/rewrite/stripping.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

void print_report(Output& output, const std::string& path, const Stripped& stripped) {
  output.line(escape_text(path) + ": " + counted(stripped.events, "event") + ", " +
              counted(stripped.bytes, "byte"));
  output.line("left out: raw values of " + counted(stripped.values, "tensor") + ", " +
              counted(stripped.stacks, "stack") + ", " + counted(stripped.diagnostics, "message") +
              ", " + counted(stripped.locations, "location") + ", command line, host and paths");
}

Json report_json(const std::string& path, const Stripped& stripped) {
  Json json;
  json["output"] = escape_text(path);
  json["events"] = stripped.events;
  json["bytes"] = stripped.bytes;
  json["left_out"] = {{"tensors", stripped.values},
                      {"stacks", stripped.stacks},
                      {"diagnostics", stripped.diagnostics},
                      {"locations", stripped.locations}};
  return json;
}

}  // namespace

ExitCode strip_trace(const StripOptions& options) {
  std::error_code ignored;
  if (std::filesystem::equivalent(options.path, options.output, ignored)) {
    complain(MessageId::kIsInput, options.output, "is the trace itself, which is never changed");
    return ExitCode::kUsage;
  }
  const auto trace = open_trace(options.path);
  if (trace == nullptr) return ExitCode::kFailure;
  NewFile file(options.output, options.overwrite);
  auto sink = file.create();
  if (sink == nullptr) return ExitCode::kFailure;
  const Result<Stripped> stripped = strip(*trace, std::move(sink), options.hashes_only);
  if (!stripped.ok()) {
    complain(MessageId::kNotWritten, options.output, status_text(stripped.status()));
    return ExitCode::kFailure;
  }
  if (!file.keep()) return ExitCode::kFailure;
  Output output;
  if (options.json) {
    output.line(dump_json(report_json(options.output, stripped.value())));
  } else {
    print_report(output, options.output, stripped.value());
  }
  return output.finish(report_state(*trace, options.path));
}

}  // namespace convtrace::tools
