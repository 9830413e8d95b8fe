#include "tools/cli/base/trace_input.h"

#include <algorithm>
#include <thread>

#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::tools {
namespace {

constexpr size_t kProblemsShown = 5;
constexpr unsigned kMostThreads = 4;

}  // namespace

unsigned decode_threads() {
  return std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
}

std::unique_ptr<reader::TraceReader> open_trace(const std::string& path,
                                                reader::OpenPolicy policy) {
  auto opened = reader::TraceReader::open(path, policy, decode_threads());
  if (opened.ok()) return std::move(opened).value();
  complain(MessageId::kUnreadable, path, status_text(opened.status()));
  return nullptr;
}

ExitCode report_state(const reader::TraceReader& trace, const std::string& path) {
  return report_state(trace.container(), trace.events_without_definition(), path);
}

ExitCode report_state(const reader::TraceContainer& trace, uint64_t events_without_definition,
                      const std::string& path) {
  switch (trace.state(events_without_definition)) {
    case reader::TraceState::kComplete: return ExitCode::kClean;
    case reader::TraceState::kUnclosed:
      complain(MessageId::kUnclosed, path,
               "unclosed: its process was ended from outside or is still writing; the last records "
               "may be missing");
      return ExitCode::kDamagedInput;
    case reader::TraceState::kDamaged: break;
  }
  const reader::RecordCounts counts = trace.counts();
  complain(MessageId::kDamaged, path,
           "damaged: " + counted(counts.lost_records, "record") + " and " +
               counted(events_without_definition, "event") + " lost, " +
               counted(counts.skipped_bytes, "byte") + " skipped");
  const auto& problems = trace.problems().kept();
  for (size_t i = 0; i < std::min(problems.size(), kProblemsShown); ++i) {
    complain(MessageId::kDamaged, path,
             "offset " + std::to_string(problems[i].offset) + ": " + escape_text(problems[i].text));
  }
  if (problems.size() > kProblemsShown) {
    complain(MessageId::kDamaged, path,
             counted(problems.size() - kProblemsShown, "further problem"));
  }
  return ExitCode::kDamagedInput;
}

}  // namespace convtrace::tools
