#include <optional>
#include <string>

#include "format/judge/finding_text.h"
#include "format/judge/memory_judge.h"
#include "tools/convtrace/commands.h"
#include "tools/convtrace/output.h"
#include "tools/convtrace/record_json.h"
#include "tools/convtrace/record_text.h"
#include "tools/convtrace/trace_input.h"

namespace convtrace::tools {
namespace {

/// Writes findings one after another and counts those that matter.
class Listing {
 public:
  Listing(const reader::TraceReader& trace, bool json) : trace_(trace), json_(json) {}

  /// @param slot  of a finding whose slot has no number in the trace.
  void add(const format::Finding& finding, const std::optional<std::string>& slot = {}) {
    if (finding.level == format::Level::kError && !finding.suppressed) ++errors_;
    if (!json_ && shown_++ != 0) output_.line("");
    if (!json_) return output_.line(finding_paragraph(finding, trace_.definitions()));
    Json line = event_json(finding, trace_.definitions(), trace_.meta().rank);
    if (slot) line["slot"] = *slot;
    output_.line(dump_json(line));
  }
  [[nodiscard]] ExitCode finish(ExitCode state) {
    if (state != ExitCode::kClean) return output_.finish(state);
    return output_.finish(errors_ == 0 ? ExitCode::kClean : ExitCode::kFindings);
  }

 private:
  const reader::TraceReader& trace_;
  bool json_;
  Output output_;
  uint64_t errors_ = 0, shown_ = 0;
};

/// Judges a trace as the process that wrote it did. What was recorded of the same kinds is not
/// listed: it says only which findings a rule silenced, since the rules are not in the trace.
class Replay {
 public:
  Replay(const reader::TraceReader& trace, Listing& listing) : trace_(trace), listing_(listing) {}

  void see(const format::Event& event) {
    const auto* const recorded = std::get_if<format::Finding>(&event);
    if (recorded == nullptr) {
      list_all();
      judge_.see(event, found_);
    } else if (!judge::MemoryJudge::judges(recorded->kind)) {
      listing_.add(*recorded);
    } else if (next_ < found_.size()) {  // they follow what showed them
      list(found_[next_++], recorded->suppressed);
    }
  }
  void list_all() {
    while (next_ < found_.size()) list(found_[next_++], false);
    found_.clear();
    next_ = 0;
  }

 private:
  void list(const judge::MemoryFinding& finding, bool suppressed) {
    const std::string message = judge::describe(finding, trace_.definitions());
    format::Finding record = judge::record_of(finding, message);
    record.suppressed = suppressed;
    record.slot ? listing_.add(record) : listing_.add(record, judge::slot_text(finding));
  }

  const reader::TraceReader& trace_;
  Listing& listing_;
  judge::MemoryJudge judge_;
  judge::MemoryJudge::Findings found_;
  size_t next_ = 0;
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
  return listing.finish(report_state(*trace, path));
}

}  // namespace convtrace::tools
