#include "tools/diff/report/reports.h"

#include <algorithm>
#include <string>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/cause/finding_stories.h"
#include "tools/diff/facts/excuses.h"
#include "tools/diff/facts/fact_groups.h"
#include "tools/diff/report/next_commands.h"
#include "tools/diff/report/report_parts.h"
#include "tools/diff/verdict/root_region.h"

namespace convtrace::diff {
namespace {

using tools::escape_text;

constexpr size_t kPreflightLines = 6;
constexpr size_t kFactLines = 8;
constexpr size_t kSourceLines = 40;  // of a file or class
constexpr size_t kStoryLines = 8;
constexpr size_t kFramesShown = 4;
constexpr uint32_t kStepsAround = 2;
constexpr size_t kNameWidth = 10, kValueWidth = 26, kMaxValueWidth = 40;
constexpr size_t kLabelWidth = 14;

class Text : public TextReport {
 public:
  Text(const DiffResult& result, Terminal terminal, std::ostream& out)
      : TextReport(terminal, out), result_(result) {}

  void write() {
    preflight();
    const bool good = result_.verdict == Verdict::kSame;
    const bool open =
        result_.verdict == Verdict::kIncomplete || result_.verdict == Verdict::kCannotTell;
    headline(good ? "32;1" : open ? "33;1" : "31;1", diff::headline(result_));
    line("cause  ", cause_text(result_), "1");
    for (const std::string& text : advice(result_)) line("  ", text);
    const char* label = "rounding    ";
    for (const std::string& text : rounding_lines(result_)) {
      line(label, text);
      label = "            ";
    }
    cause();
    if (result_.root) root(*result_.root);
    first_bit_difference();
    out_ << "\n";
    line("compared    ", compared_text(result_));
    for (const std::string& text : unread_lines(result_)) line("not read    ", text);
    line("steps       ", escape_text(step_offset_text(result_.step_offset)));
    for (const std::string& text : rank_lines(result_)) line("ranks       ", text);
    for (const std::string& text : replica_lines(result_)) line("replicas    ", text);
    for (const std::string& text : whole_lines(result_)) line("layouts     ", text);
    line("passes      ", passes_text(result_));
    for (const std::string& text : rewritten_lines(result_)) line("other ops   ", text);
    for (const std::string& text : one_sided_lines(result_)) line("one-sided   ", text);
    for (const std::string& text : other_form_lines(result_)) line("other form  ", text);
    line("ignored     ", waived_text(result_));
    for (const std::string& text : alias_lines(result_)) line("aliasing    ", escape_text(text));
    findings();
    if (has_next(result_)) next();
  }

 private:
  std::string title(const std::string& text) const { return paint("1", text); }

  /// A label with its text, as one paragraph; nothing if the text is empty.
  void line(const std::string& label, const std::string& text, const char* color = nullptr) {
    if (text.empty()) return;
    const size_t indent = std::min(width_of(label), kLabelWidth);
    out_ << (color == nullptr ? label : paint(color, label))
         << wrapped(text, terminal_.columns, width_of(label), indent) << "\n";
  }

  static std::string side(const std::optional<std::string>& value) {
    return value ? escape_text(*value) : "(none)";
  }

  void preflight() {
    if (!result_.preflight.empty()) {
      out_ << title("the runs differ in") << "  (baseline | candidate)\n";
      const size_t shown = std::min(kPreflightLines, result_.preflight.size());
      for (size_t i = 0; i < shown; ++i) {
        const PreflightEntry& entry = result_.preflight[i];
        line("  ", escape_text(entry.name) + ": " + side(entry.base) + " | " + side(entry.cand));
        line("      ", std::string(meaning_of(entry).text));
      }
      if (shown < result_.preflight.size())
        out_ << "  and " << result_.preflight.size() - shown << " more (--json lists all)\n";
    }
    facts();
    line("aligned     ", renamed_text(result_));
    for (const std::string& why : result_.incomplete) line("incomplete  ", escape_text(why), "33");
    if (!result_.preflight.empty() || !result_.incomplete.empty() || !result_.facts.empty())
      out_ << "\n";
  }

  void fact(const FactDifference& fact) {
    line("  ", escape_text(fact_text(fact)));
    const size_t shown = std::min(kSourceLines, fact.lines.size());
    for (size_t i = 0; i < shown; ++i) {
      const char kind = fact.lines[i].front();
      const std::string text = escape_text(fact.lines[i]);
      out_ << "      "
           << (kind == '-'   ? paint("34", text)
               : kind == '+' ? paint("33", text)
                             : text)
           << "\n";
    }
    if (shown < fact.lines.size())
      out_ << "      and " << tools::counted(fact.lines.size() - shown, "line")
           << " more (--html, --json)\n";
  }

  void facts() {
    if (result_.facts.empty()) return;
    out_ << title("the programs differ in") << "  (baseline | candidate)\n";
    const size_t shown = std::min(kFactLines, result_.facts.size());
    for (size_t i = 0; i < shown; ++i) fact(result_.facts[i]);
    if (shown < result_.facts.size())
      out_ << "  and " << result_.facts.size() - shown << " more (--json lists all)\n";
    if (lacks_source(result_.facts))
      out_ << "  (with CONVTRACE_SOURCE=1 in both runs, the lines that changed stand here)\n";
  }

  void cause() {
    if (!result_.cause || !result_.cause->finding) return;
    const FindingCause& cause = *result_.cause->finding;
    out_ << "\n";
    line(
        "probable cause  ",
        title_of_cause(result_) + (cause.same_memory ? "; it is about the memory of the root" : ""),
        "1");
    finding_details(cause.finding);
    rest(rest_of_story(cause.in_cand ? result_.cand_findings : result_.base_findings, cause.index));
  }

  /// The other findings of the story above.
  void rest(const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    out_ << "  of the same memory or by the same code:\n";
    for (size_t i = 0; i < std::min(lines.size(), kStoryLines); ++i) line("    ", lines[i]);
    if (lines.size() > kStoryLines)
      out_ << "    and " << lines.size() - kStoryLines << " other places (--json has all)\n";
  }

  void finding_details(const FindingReport& finding) {
    line("  ", escape_text(finding.message));
    stack("allocated", finding.alloc_stack);
    stack("launched", finding.launch_stack);
    stack("freed", finding.free_stack);
  }

  void stack(const char* what, const std::vector<std::string>& frames) {
    const std::string indent(12, ' ');
    for (size_t i = 0; i < frames.size() && i < kFramesShown; ++i) {
      const std::string label = i == 0 ? padded("  " + std::string(what), 12) : indent;
      line(label + "  ", escape_text(frames[i]));
    }
    if (frames.size() > kFramesShown)
      out_ << indent << "  ... " << frames.size() - kFramesShown << " more (--json has all)\n";
  }

  void root(const RootReport& root) {
    const RecordReport& record = root.record;
    out_ << "\n";
    line("root  ", root_sentence(root), "1");
    if (!root.has_values()) {
      line("  module      ", module_line(root));
      return steps();
    }
    line("  made by     ", maker_line(root));
    line("  value       ", object_text(record) + ", " + type_text(record));
    line("  region      ", escape_text(region_text(root.region)));
    line("  generated   ", escape_text(generated_text(root.code.generated)));
    line("  module      ", module_line(root));
    line("  called in   ", escape_text(code_text(root.caller)));
    line("  class       ",
         std::string(to_string(record.comparison.verdict)) + "; matched by " + match_text(record));
    line("  before it   ", before_text(result_));
    line("  one-sided   ", one_sided_text(root));
    line("  rounding    ", carried_text(result_));
    if (root.consumer) {
      changed_between(root);
    } else {
      out_ << "\n";
      table(record);
    }
    line("  ", tolerance_text(shown_difference(root)));
    line("  ", factor_text(root));
    line("  ", rounding_hint(result_));
    births();
    steps();
  }

  /// Other births: a second fault, or effects of the first one outside of the records.
  void births() {
    const std::vector<std::string> lines = birth_lines(result_);
    if (lines.size() < 2) return;
    out_ << "\n" << title("differences larger than the values before them explain") << "\n";
    for (const std::string& text : lines) line("  ", text);
  }

  static std::string module_line(const RootReport& root) {
    const std::string code = code_text(root.code);
    const std::string& scope = root.record.scope;
    return code.empty() ? ""
                        : escape_text((scope.empty() ? "root module" : scope) + " (" + code + ")");
  }

  void steps() {
    const std::vector<StepRow> rows = step_rows(result_, kStepsAround);
    const bool any = std::ranges::any_of(
        rows, [](const StepRow& row) { return !row.base_loss.empty() || !row.base_norm.empty(); });
    if (!any) return;
    out_ << "\n";
    line("steps  ", phase_text(result_), "1");
    std::vector<std::vector<std::string>> cells = {
        {"step", "loss", "| candidate", "gradient norm", "| candidate"}};
    for (const StepRow& row : rows) {
      cells.push_back({std::to_string(row.step), row.base_loss, "| " + row.cand_loss, row.base_norm,
                       "| " + row.cand_norm});
    }
    for (const std::string& text : table_lines(cells)) out_ << "    " << text << "\n";
  }

  /// The producer's own values mostly agree; the reader needs the place from which on they differ.
  void changed_between(const RootReport& root) {
    const format::Stats &base = root.record.base.stats, &cand = root.record.cand.stats;
    const bool agree =
        result_.bits_known ? base.hash == cand.hash : alike_but_for_hashes(base, cand);
    out_ << "  as produced " << (agree ? "identical in both runs" : "") << "\n";
    if (!agree) table(root.record);
    line("  as seen by  ", place_text(*root.consumer, false) + ", " + object_text(*root.consumer));
    table(*root.consumer);
    if (!root.effect) return;
    line("  suffered    ", place_text(*root.effect, false) + ", " + object_text(*root.effect));
    table(*root.effect);
  }

  void table(const RecordReport& record) {
    const size_t frame = 4 + kNameWidth + 2 + 2;
    const size_t column = terminal_.columns == 0
                              ? kValueWidth
                              : std::clamp<size_t>((std::max(terminal_.columns, frame) - frame) / 2,
                                                   8, kMaxValueWidth);
    out_ << "    " << padded("", kNameWidth + 2) << padded("baseline", column) << "  candidate\n";
    for (const StatRow& row : stat_rows(record)) {
      const bool fits =
          terminal_.columns == 0 || std::max(row.base.size(), row.cand.size()) <= column;
      const std::string name = padded(row.name, kNameWidth) + (row.base == row.cand ? "  " : "* ");
      const std::string between = fits ? "  " : "\n    " + padded("", kNameWidth) + " | ";
      const std::string text = name + padded(row.base, fits ? column : 0) + between + row.cand;
      out_ << "    " << (row.deciding ? paint("1", text) : text) << "\n";
    }
    for (const std::string& text : element_lines(record)) line("    ", text);
  }

  void first_bit_difference() {
    if (!result_.first_bit_difference || !result_.root) return;
    // These weights were recorded before: they are no values of the step.
    if (result_.root->weights_differ || !result_.root->written.empty()) return;
    const RecordReport& record = result_.first_bit_difference->record;
    out_ << "\n";
    line("first bit difference  ", place_text(record, result_.ranks.size() > 1) + ", " +
                                       object_text(record) + " (" +
                                       std::string(to_string(record.comparison.verdict)) + ")");
  }

  void findings() {
    finding_list("baseline", result_.base_findings, false);
    finding_list("candidate", result_.cand_findings, true);
  }

  void finding_list(const char* run, const Findings& findings, bool in_cand) {
    if (findings.count == 0) return;
    out_ << "findings    " << run << ": " << findings.count << ", " << findings.errors
         << " of them errors\n";
    if (result_.verdict == Verdict::kDiverged) return;  // the relevant one was shown above
    size_t shown = 0;
    for (const ToldStory& story : told_stories(findings)) {
      if (story.first->level != format::Level::kError || story.first->suppressed) continue;
      if (++shown > kStoriesShown) break;
      line("  ", finding_title(*story.first, in_cand));
      finding_details(*story.first);
      rest(story.others);
    }
  }

  /// Commands are neither wrapped nor indented, so that they can be copied.
  void next() {
    const std::vector<std::string> commands = next_commands(result_);
    if (commands.empty()) return;
    out_ << "\n";
    line("next  ", next_title(result_), "1");
    for (const std::string& command : commands) out_ << command << "\n";
  }

  const DiffResult& result_;
};

}  // namespace

void write_text_report(const DiffResult& result, Terminal terminal, std::ostream& out) {
  Text(result, terminal, out).write();
}

}  // namespace convtrace::diff
