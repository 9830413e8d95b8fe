#include "tools/diff/expect/contract_report.h"

#include <string>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/report/report_parts.h"
#include "tools/diff/report/reports.h"
#include "tools/report/junit.h"

namespace convtrace::diff {
namespace {

using tools::Json;

/// "unchanged scope = "head"".
std::string title_of(const Clause& clause) {
  return std::string(to_string(clause.kind)) + "  " + tools::escape_text(clause.text);
}

std::string headline_of(const ContractReport& report) {
  const JudgedContract& judged = report.judged;
  const auto all = tools::counted(judged.clauses.size(), "clause");
  switch (judged.kept()) {
    case Kept::kBroken:
      return "BROKEN: " + tools::count_text(judged.count(Kept::kBroken)) + " of " + all;
    case Kept::kCannotTell:
      return "CANNOT TELL: " + tools::count_text(judged.count(Kept::kCannotTell)) + " of " + all +
             ", the others are kept";
    case Kept::kKept: break;
  }
  return "KEPT: " + all;
}

Json clause_json(const JudgedClause& one) {
  return {{"clause", to_string(one.clause->kind)},
          {"where", one.clause->text},
          {"line", one.clause->line == 0 ? Json() : Json(one.clause->line)},
          {"verdict", to_string(one.kept)},
          {"text", one.text},
          {"place", one.place ? place_json(*one.place) : Json()}};
}

}  // namespace

void write_text(const ContractReport& report, Terminal terminal, std::ostream& out) {
  const auto color = [](Kept kept) {
    return kept == Kept::kKept ? "32;1" : kept == Kept::kBroken ? "31;1" : "33;1";
  };
  out << painted(terminal, color(report.judged.kept()), headline_of(report)) << "\n";
  for (const JudgedClause& one : report.judged.clauses) {
    out << "\n"
        << painted(terminal, color(one.kept), padded(std::string(to_string(one.kept)), 11)) << "  "
        << title_of(*one.clause);
    if (one.clause->line != 0) out << "  (line " << one.clause->line << ")";
    out << "\n" << labelled(terminal, "  ", one.text);
  }
  out << "\n"
      << labelled(terminal, "diff        ", headline(report.result))
      << labelled(terminal, "cause       ", cause_text(report.result));
}

Json json_of(const ContractReport& report) {
  return {{"verdict", to_string(report.judged.kept())},
          {"headline", headline_of(report)},
          {"contract", report.contract.path},
          {"clauses", tools::json_list(report.judged.clauses, clause_json)},
          {"diff", json_report(report.result)}};
}

report::Brief brief_of(const ContractReport& report) {
  const Kept kept = report.judged.kept();
  report::Brief brief{.verdict = std::string(to_string(kept)), .headline = headline_of(report)};
  brief.confidence = kept == Kept::kBroken ? report::Confidence::kProven
                     : kept == Kept::kKept ? report::Confidence::kLikely
                                           : report::Confidence::kNone;
  uint32_t first_step = format::kNoStep;
  for (const JudgedClause& one : report.judged.clauses) {
    const std::string text = title_of(*one.clause) + ": " + one.text;
    if (one.kept == Kept::kCannotTell) brief.cannot_tell.push_back(text);
    if (one.kept != kept || kept == Kept::kCannotTell) continue;
    if (kept == Kept::kBroken && one.place && one.place->step < first_step) {
      first_step = one.place->step;
      brief.place = place_json(*one.place);
    }
    brief.evidence.push_back(text);
  }
  const report::Brief of_diff = brief_of(report.result);
  if (kept == Kept::kBroken) {
    brief.cause = of_diff.cause;
    brief.next = of_diff.next;
  }
  return brief;
}

void write_junit(const ContractReport& report, std::ostream& out) {
  std::vector<report::JunitCase> cases;
  for (const JudgedClause& one : report.judged.clauses) {
    report::JunitCase& test = cases.emplace_back();
    test.name = title_of(*one.clause);
    if (one.kept == Kept::kBroken) test.failure = one.text;
    if (one.kept == Kept::kCannotTell) test.skipped = one.text;
  }
  report::write_junit("convtrace expect", "convtrace-expect", cases, out);
}

}  // namespace convtrace::diff
