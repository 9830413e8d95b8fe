#include <algorithm>
#include <iostream>

#include "format/settings/nearest.h"
#include "tools/check/catalog.h"
#include "tools/check/report/reports.h"
#include "tools/check/run.h"
#include "tools/common/commands.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/report/outputs.h"

namespace convtrace::check {
namespace {

using tools::ExitCode;

std::vector<std::string_view> known_ids() {
  std::vector<std::string_view> ids;
  for (const CatalogRow& row : catalog()) ids.push_back(row.id);
  for (size_t kind = 0; kind < format::kEnumCount<format::FindingKind>; ++kind)
    ids.push_back(to_string(static_cast<format::FindingKind>(kind)));
  return ids;
}

/// @return a message about the first word that is no id; "" if all are.
std::string unknown_id(const std::vector<std::string>& words) {
  const std::vector<std::string_view> ids = known_ids();
  for (const std::string& word : words) {
    if (std::ranges::find(ids, word) != ids.end()) continue;
    return "unknown check " + settings::quoted(word) + "; " +
           settings::suggestion(word, ids, "`convtrace check --list` lists them");
  }
  return "";
}

struct Options {
  std::vector<std::string> paths, only, skip;
  std::string json, html, junit;
  bool brief = false, list = false, live = false;
};

ExitCode check(const Options& options) {
  if (options.list) {
    for (const CatalogRow& row : catalog())
      std::cout << row.id << "  " << row.what << (row.by_default ? "" : " (only with --only)")
                << "\n";
    return ExitCode::kClean;
  }
  if (options.paths.empty()) {
    tools::complain(tools::MessageId::kUsage, "check needs a trace: convtrace check TRACE...");
    return ExitCode::kUsage;
  }
  for (const auto* words : {&options.only, &options.skip}) {
    const std::string problem = unknown_id(*words);
    if (problem.empty()) continue;
    tools::complain(tools::MessageId::kUsage, problem);
    return ExitCode::kUsage;
  }
  diff::remove_unfinished_files_on_signals();
  diff::Outputs outputs("convtrace", std::cout, std::cerr);
  std::ostream* const json = outputs.open(report::json_path(options.json, options.brief));
  std::ostream* const html = outputs.open(options.html);
  std::ostream* const junit = outputs.open(options.junit);
  if (outputs.failed()) return ExitCode::kUsage;
  const auto wanted = [&options](std::string_view id) {
    if (std::ranges::find(options.skip, id) != options.skip.end()) return false;
    if (!options.only.empty()) return std::ranges::find(options.only, id) != options.only.end();
    const auto rows = catalog();
    const auto row = std::ranges::find(rows, id, &CatalogRow::id);
    return row == rows.end() || row->by_default;
  };
  CheckResult result;
  std::string error;
  std::ostream& people = outputs.people();
  const auto tell = [&people](const Finding& finding) {
    people << to_string(finding.severity) << " " << finding.id << "  " << place_of(finding) << ": "
           << tools::escape_text(finding.text) << std::endl;
  };
  const bool read = options.live ? check_live(options.paths, wanted, tell, result, error)
                                 : check_run(options.paths, wanted, result, error);
  if (!read) {
    std::cerr << "convtrace: " << error << "\n";
    return ExitCode::kUsage;
  }
  if (json != nullptr)
    *json << (options.brief ? report::brief_json(brief_of(result))
                            : tools::dump_json(json_of(result), 2))
          << "\n";
  if (html != nullptr) write_html(result, *html);
  if (junit != nullptr) write_junit(result, *junit);
  outputs.finish();
  if (!options.brief)
    write_text(result, outputs.stdout_taken() ? diff::Terminal{} : diff::own_terminal(),
               outputs.people());
  outputs.flush();
  if (outputs.failed()) return ExitCode::kUsage;
  if (result.count(Severity::kError) + result.count(Severity::kWarning) != 0)
    return ExitCode::kFindings;
  return result.incomplete.empty() ? ExitCode::kClean : ExitCode::kDamagedInput;
}

}  // namespace

void add_check(tools::Commands& commands) {
  auto [command, options] = commands.add<Options>(
      "check", "What one run alone proves wrong, without a run to compare it with", check);
  command.add_option("TRACE", options.paths, "Traces of one run, or folders of them, one a rank");
  command.add_option("--only", options.only, "Only these checks, comma-separated")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("ID,...");
  command.add_option("--skip", options.skip, "All but these checks")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("ID,...");
  command.add_option("--json", options.json, "Write everything found as JSON (- for stdout)")
      ->type_name("F");
  command.add_flag("--brief", options.brief,
                   "The worst finding alone, as JSON of at most 2 kB: to F of --json, else to "
                   "stdout");
  command.add_option("--html", options.html, "Write a page")->type_name("F");
  command.add_option("--junit", options.junit, "Write JUnit XML (- for stdout)")->type_name("F");
  command.add_flag(
      "--live", options.live,
      "While the job writes the traces: tell each finding when it is found, and report "
      "when they are closed, their processes are gone, or with Ctrl-C");
  command.add_flag("--list", options.list, "Instead: the checks and what each looks for");
  command.footer(
      "Exit codes: 0 nothing, or hints alone; 4 an error or a warning; 3 a trace is unclosed or "
      "damaged; 2 usage.");
}

}  // namespace convtrace::check
