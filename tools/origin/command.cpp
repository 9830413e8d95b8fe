#include "tools/origin/command.h"

#include <iostream>

#include "tools/common/complaints.h"
#include "tools/diff/report/outputs.h"
#include "tools/origin/report/reports.h"
#include "tools/origin/run.h"

namespace convtrace::origin {

using tools::ExitCode;

OriginCommand::OriginCommand(CLI::App& app)
    : command_(app.add_subcommand(
          "origin", "Where a job of several ranks went wrong first, and who received it")) {
  command_->add_option("TRACE", paths_, "Traces of one job, or folders of them, one a rank");
  command_->add_option("--json", json_, "Write everything found as JSON (- for stdout)")
      ->type_name("F");
  command_->add_option("--html", html_, "Write a page")->type_name("F");
  command_->add_option("--threads", threads_, "To read with (default: all of the machine)")
      ->type_name("N");
  command_->footer(
      "Exit codes: 0 nothing; 4 an origin; 3 nothing, and a trace is unclosed or damaged; 2 "
      "usage.");
}

ExitCode OriginCommand::run() const {
  if (paths_.empty()) {
    tools::complain(tools::MessageId::kUsage, "origin needs traces: convtrace origin DIR");
    return ExitCode::kUsage;
  }
  diff::remove_unfinished_files_on_signals();
  diff::Outputs outputs("convtrace", std::cout, std::cerr);
  std::ostream* const json = outputs.open(json_);
  std::ostream* const html = outputs.open(html_);
  if (outputs.failed()) return ExitCode::kUsage;
  OriginResult result;
  std::string error;
  if (!find_origins(paths_, {.threads = threads_}, result, error)) {
    std::cerr << "convtrace: " << error << "\n";
    return ExitCode::kUsage;
  }
  if (json != nullptr) *json << tools::dump_json(json_of(result), 2) << "\n";
  if (html != nullptr) write_html(result, *html);
  outputs.finish();
  write_text(result, outputs.stdout_taken() ? diff::Terminal{} : diff::own_terminal(),
             outputs.people());
  outputs.flush();
  if (outputs.failed()) return ExitCode::kUsage;
  if (!result.origins.empty()) return ExitCode::kFindings;
  return result.incomplete.empty() ? ExitCode::kClean : ExitCode::kDamagedInput;
}

}  // namespace convtrace::origin
