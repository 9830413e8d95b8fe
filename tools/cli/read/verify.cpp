#include <algorithm>

#include "reader/trace_check.h"
#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/cli/base/record_json.h"
#include "tools/cli/base/trace_input.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

constexpr size_t kProblemsShown = 20;

const char* state_text(const reader::TraceCheckResult& check) {
  if (!check.problems.empty()) return "damaged";
  return check.closed ? "complete" : "unclosed";
}

Json check_json(const reader::TraceCheckResult& check) {
  Json json;
  json["state"] = state_text(check);
  json["records"] = check.records;
  json["events"] = check.events;
  json["cut_bytes"] = check.cut_bytes;
  json["problem_count"] = check.problems.count();
  json["problems"] = problems_json(check.problems.kept());
  return json;
}

void print_check(Output& output, const reader::TraceCheckResult& check) {
  output.line(std::string(state_text(check)) + ": " + counted(check.records, "record") + ", " +
              counted(check.events, "event") + ", " + counted(check.problems.count(), "problem"));
  const auto& problems = check.problems.kept();
  for (size_t i = 0; i < std::min(problems.size(), kProblemsShown); ++i) {
    output.line("offset " + std::to_string(problems[i].offset) + ": " +
                escape_text(problems[i].text));
  }
  if (check.problems.count() > kProblemsShown)
    output.line("... and " + counted(check.problems.count() - kProblemsShown, "further problem"));
  if (check.problems.empty() && !check.closed) {
    output.line("not closed: its process was ended from outside or is still writing; " +
                counted(check.cut_bytes, "byte") + " at the end are of no whole record");
  }
}

ExitCode verify_trace(const TraceOptions& options) {
  const auto source = reader::FileSource::open(options.path);
  const auto check = source.ok() ? reader::check_trace(*source.value()) : source.status();
  if (!check.ok()) {
    complain(MessageId::kUnreadable, options.path, status_text(check.status()));
    return ExitCode::kFailure;
  }
  Output output;
  if (options.json) {
    output.line(dump_json(check_json(check.value())));
  } else {
    print_check(output, check.value());
  }
  const bool clean = check.value().problems.empty() && check.value().closed;
  return output.finish(clean ? ExitCode::kClean : ExitCode::kDamagedInput);
}

}  // namespace

void add_verify(Commands& commands) {
  auto [command, options] = commands.add<TraceOptions>(
      "verify", "Check every checksum and every rule of the format", verify_trace);
  add_trace_options(command, options, "One JSON object");
}

}  // namespace convtrace::tools
