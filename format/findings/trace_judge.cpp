#include "format/findings/trace_judge.h"

#include "format/findings/memory/memory_judge.h"
#include "format/findings/ops/op_finding.h"

namespace convtrace::judge {

std::span<Verdict> TraceJudge::see(const format::Event& event) {
  memory_.see(event, memory_findings_);
  aliases_.see(event, op_findings_);
  values_.see(event, op_findings_);
  overwritten_.see(event, op_findings_);
  flights_.see(event, flight_findings_);
  if (memory_findings_.empty() && op_findings_.empty() && flight_findings_.empty()) return {};
  verdicts_.clear();
  for (const MemoryFinding& finding : memory_findings_) {
    add(finding);
    verdicts_.back().slot = slot_text(finding);
    verdicts_.back().maker_scope = finding.made.place.scope;
  }
  for (const OpFinding& finding : op_findings_) add(finding);
  for (const FlightFinding& finding : flight_findings_) add(finding);
  memory_findings_.clear();
  op_findings_.clear();
  flight_findings_.clear();
  for (Verdict& verdict : verdicts_) verdict.record.message = verdict.message;
  return verdicts_;
}

}  // namespace convtrace::judge
