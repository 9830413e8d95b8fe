#include <optional>
#include <span>
#include <string>

#include "format/judge/trace_judge.h"
#include "tools/convtrace/commands.h"
#include "tools/convtrace/output.h"
#include "tools/convtrace/record_json.h"
#include "tools/convtrace/record_text.h"
#include "tools/convtrace/symbols.h"
#include "tools/convtrace/trace_input.h"

namespace convtrace::tools {
namespace {

/// Writes findings one after another and counts those that matter.
class Listing {
 public:
  Listing(const reader::TraceReader& trace, bool json)
      : trace_(trace), symbols_(trace.meta(), trace.definitions()), json_(json) {}

  /// @param slot  of a finding whose slot has no number in the trace.
  void add(const format::Finding& finding, const std::optional<std::string>& slot = {}) {
    if (finding.level == format::Level::kError && !finding.suppressed) ++errors_;
    if (!json_ && shown_++ != 0) output_.line("");
    const Stacks stacks{.alloc = symbols_.frames(finding.alloc_stack),
                        .launch = symbols_.frames(finding.launch_stack),
                        .free = symbols_.frames(finding.free_stack)};
    if (!json_) return output_.line(finding_paragraph(finding, stacks, trace_.definitions()));
    Json line = event_json(finding, trace_.definitions(), trace_.meta().rank);
    line["stacks"] = {{"alloc", stacks.alloc}, {"launch", stacks.launch}, {"free", stacks.free}};
    if (slot) line["slot"] = *slot;
    output_.line(dump_json(line));
  }
  [[nodiscard]] ExitCode finish(ExitCode state, const std::string& path) {
    symbols_.report(path);
    if (state != ExitCode::kClean) return output_.finish(state);
    return output_.finish(errors_ == 0 ? ExitCode::kClean : ExitCode::kFindings);
  }

 private:
  const reader::TraceReader& trace_;
  Symbols symbols_;
  bool json_;
  Output output_;
  uint64_t errors_ = 0, shown_ = 0;
};

/// Judges a trace as the process that wrote it did. What was recorded of the same kinds is not
/// listed: it says only which findings a rule silenced, since the rules are not in the trace.
class Replay {
 public:
  Replay(const reader::TraceReader& trace, Listing& listing)
      : listing_(listing), judge_(trace.definitions()) {}

  void see(const format::Event& event) {
    const auto* const recorded = std::get_if<format::Finding>(&event);
    if (recorded == nullptr) {
      list_all();
      found_ = judge_.see(event);
    } else if (!judge::TraceJudge::judges(recorded->kind)) {
      listing_.add(*recorded);
    } else if (!found_.empty()) {  // they follow what showed them
      list_next(recorded->suppressed);
    }
  }
  void list_all() {
    while (!found_.empty()) list_next(false);
  }

 private:
  void list_next(bool suppressed) {
    judge::Verdict& verdict = found_.front();
    verdict.record.suppressed = suppressed;
    const bool named = static_cast<bool>(verdict.record.slot);
    listing_.add(verdict.record, named ? std::nullopt : std::optional(verdict.slot));
    found_ = found_.subspan(1);
  }

  Listing& listing_;
  judge::TraceJudge judge_;
  std::span<judge::Verdict> found_;
};

}  // namespace

ExitCode show_findings(const std::string& path, bool json, bool replay) {
  const auto trace = open_trace(path);
  if (trace == nullptr) return ExitCode::kFailure;
  Listing listing(*trace, json);
  Replay again(*trace, listing);
  while (const format::Event* event = trace->next()) {
    if (replay) {
      again.see(*event);
    } else if (const auto* finding = std::get_if<format::Finding>(event)) {
      listing.add(*finding);
    }
  }
  again.list_all();
  return listing.finish(report_state(*trace, path), path);
}

}  // namespace convtrace::tools
