#include <algorithm>

#include "tools/check/report/reports.h"
#include "tools/check/report/story_text.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

using tools::escape_text;

/// Findings of one check and step are one bug in most runs.
constexpr size_t kOfOneKind = 3;

class Text : public diff::TextReport {
 public:
  Text(const CheckResult& result, diff::Terminal terminal, std::ostream& out)
      : TextReport(terminal, out), result_(result) {}

  void write() {
    const bool clean = result_.count(Severity::kError) + result_.count(Severity::kWarning) == 0;
    headline(clean ? "32;1" : "31;1", check::headline(result_));
    for (const auto& [label, text] : story_lines(result_)) line(label, text);
    for (const std::string& why : result_.incomplete) line("incomplete  ", why);
    for (const std::string& note : result_.notes) line("note        ", escape_text(note));
    earliest();
    size_t alike = 0;
    for (size_t i = 0; i < result_.findings.size(); ++i) {
      const Finding& one = result_.findings[i];
      const bool again = i != 0 && result_.findings[i - 1].id == one.id &&
                         result_.findings[i - 1].severity == one.severity;
      alike = again ? alike + 1 : 0;
      if (alike < kOfOneKind) finding(one);
      const bool last = i + 1 == result_.findings.size() || result_.findings[i + 1].id != one.id ||
                        result_.findings[i + 1].severity != one.severity;
      if (last && alike >= kOfOneKind) {
        out_ << "\n";
        line("", "and " + std::to_string(alike - kOfOneKind + 1) + " more of " +
                     std::string(one.id) + " (--json has all)");
      }
    }
    out_ << "\n";
    std::string judged, unknown;
    for (const Looked& one : result_.looked)
      (one.times != 0 ? judged : unknown) +=
          (((one.times != 0 ? judged : unknown).empty()) ? "" : ", ") + std::string(one.id);
    line("judged      ", judged);
    line("not known   ", unknown);
  }

 private:
  /// Adds the earliest finding, since the worst one may be its consequence.
  void earliest() {
    const Finding* first = nullptr;
    for (const Finding& one : result_.findings) {
      if (one.severity == Severity::kHint || !one.step) continue;
      if (first == nullptr || *one.step < *first->step) first = &one;
    }
    if (first == nullptr || !result_.findings[0].step || *first->step >= *result_.findings[0].step)
      return;
    line("first       ", std::string(first->id) + ", " + place_of(*first));
  }

  void finding(const Finding& one) {
    const bool hint = one.severity == Severity::kHint;
    out_ << "\n"
         << paint(hint ? "33" : "31;1",
                  std::string(to_string(one.severity)) + " " + std::string(one.id))
         << "  " << place_of(one) << "\n";
    std::string text = escape_text(one.text);
    if (one.times > 1) text += " (" + std::to_string(one.times) + " times)";
    line("  ", text);
    for (const std::string& each : one.evidence) line("    seen    ", escape_text(each));
    line("    cause   ", escape_text(one.cause));
    line("    next    ", escape_text(one.next));
  }

  const CheckResult& result_;
};

}  // namespace

std::string headline(const CheckResult& result) {
  std::string text;
  for (const Severity severity : {Severity::kError, Severity::kWarning, Severity::kHint}) {
    const uint64_t count = result.count(severity);
    if (count == 0) continue;
    text += (text.empty() ? "" : ", ") + tools::counted(count, to_string(severity));
  }
  const uint64_t judged = static_cast<uint64_t>(
      std::ranges::count_if(result.looked, [](const Looked& one) { return one.times != 0; }));
  if (text.empty()) text = judged == 0 ? "Nothing to judge" : "Nothing found";
  text += " in " + tools::counted(result.steps_trained, "training step") + " of " +
          tools::counted(result.ranks, "rank");
  return text + ", by " + tools::counted(judged, "check") + ".";
}

std::string place_of(const Finding& finding) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  };
  if (finding.rank != 0) add("rank " + std::to_string(finding.rank));
  if (finding.step) add("step " + std::to_string(*finding.step));
  if (finding.phase) add(std::string(to_string(*finding.phase)));
  if (finding.scope)
    add(finding.scope->empty() ? std::string("root module") : escape_text(*finding.scope));
  add(escape_text(finding.op));
  add(escape_text(finding.slot));
  return text;
}

void write_text(const CheckResult& result, diff::Terminal terminal, std::ostream& out) {
  Text(result, terminal, out).write();
}

}  // namespace convtrace::check
