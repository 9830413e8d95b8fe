#include <iostream>

#include "tools/common/commands.h"
#include "tools/common/complaints.h"
#include "tools/origin/report/reports.h"
#include "tools/origin/run.h"
#include "tools/report/outputs.h"

namespace convtrace::origin {

using tools::ExitCode;

namespace {

struct Options {
  std::vector<std::string> paths;
  std::string json, html;
  bool brief = false;
  unsigned threads = 0;
};

ExitCode track(const Options& options) {
  if (options.paths.empty()) {
    tools::complain(tools::MessageId::kUsage, "origin needs traces: convtrace origin DIR");
    return ExitCode::kUsage;
  }
  diff::remove_unfinished_files_on_signals();
  diff::Outputs outputs("convtrace", std::cout, std::cerr);
  std::ostream* const json = outputs.open(report::json_path(options.json, options.brief));
  std::ostream* const html = outputs.open(options.html);
  if (outputs.failed()) return ExitCode::kUsage;
  OriginResult result;
  std::string error;
  if (!find_origins(options.paths, {.threads = options.threads}, result, error)) {
    std::cerr << "convtrace: " << error << "\n";
    return ExitCode::kUsage;
  }
  if (json != nullptr)
    *json << (options.brief ? report::brief_json(brief_of(result))
                            : tools::dump_json(json_of(result), 2))
          << "\n";
  if (html != nullptr) write_html(result, *html);
  outputs.finish();
  if (!options.brief)
    write_text(result, outputs.stdout_taken() ? diff::Terminal{} : diff::own_terminal(),
               outputs.people());
  outputs.flush();
  if (outputs.failed()) return ExitCode::kUsage;
  if (!result.origins.empty()) return ExitCode::kFindings;
  return result.incomplete.empty() ? ExitCode::kClean : ExitCode::kDamagedInput;
}

}  // namespace

void add_origin(tools::Commands& commands) {
  auto [command, options] = commands.add<Options>(
      "origin", "Where a job of several ranks went wrong first, and who received it", track);
  command.add_option("TRACE", options.paths, "Traces of one job, or folders of them, one a rank");
  command.add_option("--json", options.json, "Write everything found as JSON (- for stdout)")
      ->type_name("F");
  command.add_flag("--brief", options.brief,
                   "The first origin alone, as JSON of at most 2 kB: to F of --json, else to "
                   "stdout");
  command.add_option("--html", options.html, "Write a page")->type_name("F");
  command.add_option("--threads", options.threads, "To read with (default: all of the machine)")
      ->type_name("N");
  command.footer(
      "Exit codes: 0 nothing; 4 an origin; 3 nothing, and a trace is unclosed or damaged; 2 "
      "usage.");
}

}  // namespace convtrace::origin
