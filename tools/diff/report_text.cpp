#include "tools/diff/report_text.h"

#include <algorithm>
#include <string>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/next_commands.h"
#include "tools/diff/report_parts.h"

namespace convtrace::diff {
namespace {

using tools::escape_text;

constexpr size_t kPreflightLines = 6;
constexpr size_t kFindingLines = 5;
constexpr size_t kFramesShown = 4;
constexpr size_t kValueWidth = 26;

class TextReport {
 public:
  TextReport(const DiffResult& result, bool color, std::ostream& out)
      : result_(result), color_(color), out_(out) {}

  void write() {
    preflight();
    const bool good = result_.verdict == Verdict::kSame;
    out_ << paint(good ? "32;1" : "31;1", headline(result_)) << "\n";
    cause();
    if (result_.root) root(*result_.root);
    first_bit_difference();
    out_ << "\ncompared    " << compared_text(result_) << "\n";
    findings();
    if (result_.root) next();
  }

 private:
  std::string paint(const char* code, const std::string& text) const {
    return color_ ? "\x1b[" + std::string(code) + 'm' + text + "\x1b[0m" : text;
  }

  std::string title(const std::string& text) const { return paint("1", text); }

  static std::string side(const std::optional<std::string>& value) {
    return value ? escape_text(*value) : "(none)";
  }

  void preflight() {
    if (!result_.preflight.empty()) {
      out_ << title("the runs differ in") << "  (baseline | candidate)\n";
      const size_t shown = std::min(kPreflightLines, result_.preflight.size());
      for (size_t i = 0; i < shown; ++i) {
        const PreflightEntry& entry = result_.preflight[i];
        out_ << "  " << escape_text(entry.name) << ": " << side(entry.base) << " | "
             << side(entry.cand) << "\n";
      }
      if (shown < result_.preflight.size()) {
        out_ << "  and " << result_.preflight.size() - shown << " more (--json lists all)\n";
      }
    }
    line("aligned     ", renamed_text(result_));
    for (const std::string& why : result_.incomplete) {
      out_ << paint("33", "incomplete") << "  " << escape_text(why) << "\n";
    }
    if (!result_.preflight.empty() || !result_.incomplete.empty()) out_ << "\n";
  }

  void cause() {
    if (!result_.cause) return;
    const Cause& cause = *result_.cause;
    out_ << "\n" << title("probable cause") << "  " << finding_title(cause.finding, cause.in_cand);
    out_ << (cause.same_memory ? "; it is about the memory of the root\n" : "\n");
    finding_details(cause.finding);
  }

  void finding_details(const FindingReport& finding) {
    if (!finding.message.empty()) out_ << "  " << escape_text(finding.message) << "\n";
    stack("allocated", finding.alloc_stack);
    stack("launched", finding.launch_stack);
    stack("freed", finding.free_stack);
  }

  void stack(const char* what, const std::vector<std::string>& frames) {
    const std::string indent(12, ' ');
    for (size_t i = 0; i < frames.size() && i < kFramesShown; ++i) {
      const std::string label = i == 0 ? padded("  " + std::string(what), 12) : indent;
      out_ << label << "  " << escape_text(frames[i]) << "\n";
    }
    if (frames.size() > kFramesShown) {
      out_ << indent << "  ... " << frames.size() - kFramesShown << " more (--json has all)\n";
    }
  }

  void root(const RootReport& root) {
    const RecordReport& record = root.record;
    out_ << "\n"
         << title("root") << "  " << root_sentence(root) << "\n"
         << "  where       " << place_text(record, true) << "\n"
         << "  value       " << object_text(record) << ", " << type_text(record) << "\n"
         << "  class       " << to_string(record.comparison.verdict) << "; matched by "
         << match_text(record) << "\n"
         << "  before it   " << tools::counted(root.matched_before, "value") << " matched\n";
    line("  one-sided   ", one_sided_text(root));
    if (root.consumer) {
      changed_between(root);
    } else {
      out_ << "\n";
      table(record);
    }
    line("  ", tolerance_text(shown_difference(root)));
    line("  ", rounding_hint(root, result_.noise_given));
  }

  /// The producer's own values agree as a rule; what the reader needs is where they stopped to.
  void changed_between(const RootReport& root) {
    const bool agree = root.record.base.stats.hash == root.record.cand.stats.hash;
    out_ << "  as produced " << (agree ? "identical in both runs" : "") << "\n";
    if (!agree) table(root.record);
    out_ << "  as seen by  " << place_text(*root.consumer, false) << ", "
         << object_text(*root.consumer) << "\n";
    table(*root.consumer);
    if (!root.effect) return;
    out_ << "  suffered    " << place_text(*root.effect, false) << ", " << object_text(*root.effect)
         << "\n";
    table(*root.effect);
  }

  void line(const char* indent, const std::string& text) {
    if (!text.empty()) out_ << indent << text << "\n";
  }

  static std::string padded(std::string text, size_t width) {
    if (text.size() < width) text.append(width - text.size(), ' ');
    return text;
  }

  void table(const RecordReport& record) {
    out_ << "    " << padded("", 10) << "  " << padded("baseline", kValueWidth) << "  candidate\n";
    for (const StatRow& row : stat_rows(record)) {
      const bool differs = row.base != row.cand;
      const std::string text = padded(row.name, 10) + (differs ? " *" : "  ") +
                               padded(row.base, kValueWidth) + "  " + row.cand;
      out_ << "    " << (row.deciding ? paint("1", text) : text) << "\n";
    }
  }

  void first_bit_difference() {
    if (!result_.first_bit_difference) return;
    const RecordReport& record = result_.first_bit_difference->record;
    out_ << "\nfirst bit difference  " << place_text(record, result_.ranks.size() > 1) << ", "
         << object_text(record) << " (" << to_string(record.comparison.verdict) << ")\n";
    if (result_.verdict == Verdict::kSame &&
        result_.counts[static_cast<size_t>(Class::kBitDifference)] != 0) {
      out_ << "  where only hashes were recorded nobody can say by how much the values differ: "
              "record statistics to know\n";
    }
  }

  void findings() {
    finding_list("baseline", result_.base_findings, false);
    finding_list("candidate", result_.cand_findings, true);
  }

  void finding_list(const char* run, const Findings& findings, bool in_cand) {
    if (findings.count == 0) return;
    out_ << "findings    " << run << ": " << findings.count << ", " << findings.errors
         << " of them errors\n";
    if (result_.verdict == Verdict::kDiverged) return;  // the one that matters was shown above
    size_t shown = 0;
    for (const FindingReport& finding : findings.list) {
      if (finding.level != format::Level::kError || finding.suppressed) continue;
      if (++shown > kFindingLines) break;
      out_ << "  " << finding_title(finding, in_cand) << "\n";
      finding_details(finding);
    }
  }

  void next() {
    out_ << "\n"
         << title("next")
         << "  record this step of both runs again with more raw values, and compare:\n";
    for (const std::string& command : next_commands(result_)) out_ << "  " << command << "\n";
  }

  const DiffResult& result_;
  bool color_;
  std::ostream& out_;
};

}  // namespace

void write_text_report(const DiffResult& result, bool color, std::ostream& out) {
  TextReport(result, color, out).write();
}

}  // namespace convtrace::diff
