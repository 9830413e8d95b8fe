#include "tools/convtrace/trace_input.h"

#include <algorithm>
#include <cstdio>

#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

constexpr size_t kProblemsShown = 5;

void say(const std::string& path, const std::string& text) {
  std::fprintf(stderr, "convtrace: %s: %s\n", escape_text(path).c_str(), text.c_str());
}

}  // namespace

std::unique_ptr<reader::TraceReader> open_trace(const std::string& path) {
  auto opened = reader::TraceReader::open(path);
  if (opened.ok()) return std::move(opened).value();
  say(path, status_text(opened.status()));
  return nullptr;
}

ExitCode report_state(const reader::TraceReader& trace, const std::string& path) {
  switch (trace.state()) {
    case reader::TraceState::kComplete:
      return ExitCode::kClean;
    case reader::TraceState::kUnclosed:
      say(path, "unclosed: the process was ended from outside; its last records may be missing");
      return ExitCode::kDamagedInput;
    case reader::TraceState::kDamaged:
      break;
  }
  const reader::RecordCounts counts = trace.counts();
  say(path, "damaged: " + counted(counts.lost_records, "record") + " and " +
                counted(trace.events_without_definition(), "event") + " lost, " +
                counted(counts.skipped_bytes, "byte") + " skipped");
  const auto& problems = trace.problems();
  for (size_t i = 0; i < std::min(problems.size(), kProblemsShown); ++i) {
    say(path,
        "offset " + std::to_string(problems[i].offset) + ": " + escape_text(problems[i].text));
  }
  if (problems.size() > kProblemsShown) {
    say(path, counted(problems.size() - kProblemsShown, "further problem"));
  }
  return ExitCode::kDamagedInput;
}

}  // namespace convtrace::tools
