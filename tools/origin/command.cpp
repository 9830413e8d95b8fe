#include "tools/origin/command.h"

#include <fstream>
#include <iostream>

#include "tools/common/complaints.h"
#include "tools/origin/digest/write_digest.h"
#include "tools/origin/report/reports.h"
#include "tools/origin/run.h"
#include "tools/report/outputs.h"

namespace convtrace::origin {

using tools::ExitCode;

OriginCommand::OriginCommand(CLI::App& app)
    : command_(app.add_subcommand(
          "origin", "Where a job of several ranks went wrong first, and who received it")) {
  command_->add_option("TRACE", paths_, "Traces of one job, or folders of them, one a rank");
  command_->add_option("--json", json_, "Write everything found as JSON (- for stdout)")
      ->type_name("F");
  command_->add_flag("--brief", brief_,
                     "The first origin alone, as JSON of at most 2 kB: to F of --json, else to "
                     "stdout");
  command_->add_option("--html", html_, "Write a page")->type_name("F");
  command_->add_option("--threads", threads_, "To read with (default: all of the machine)")
      ->type_name("N");
  // For convtrace.jobs; docs/scale.md.
  command_->add_option("--digest", digest_, "Write what is kept of one trace (- for stdout)")
      ->type_name("F")
      ->group("");
  command_->add_option("--digests", digests_, "Judge digests of the traces (- for stdin)")
      ->type_name("F")
      ->group("")
      ->excludes("--digest");
  command_->footer(
      "Exit codes: 0 nothing; 4 an origin; 3 nothing, and a trace is unclosed or damaged; 2 "
      "usage.");
}

bool OriginCommand::judge(OriginResult& result, std::string& error) const {
  if (digests_.empty()) return find_origins(paths_, {.threads = threads_}, result, error);
  if (digests_ == "-") return judge_digests(std::cin, paths_, result, error);
  std::ifstream file(digests_, std::ios::binary);
  return judge_digests(file, paths_, result, error);
}

ExitCode OriginCommand::write_one_digest() const {
  if (paths_.size() != 1) {
    tools::complain(tools::MessageId::kUsage, "--digest takes one trace");
    return ExitCode::kUsage;
  }
  if (digest_ == "-") {
    write_digest(paths_.front(), std::cout);
    return std::cout.flush() ? ExitCode::kClean : ExitCode::kUsage;
  }
  std::ofstream file(digest_, std::ios::binary);
  write_digest(paths_.front(), file);
  if (file.flush()) return ExitCode::kClean;
  tools::complain(tools::MessageId::kNotWritten, digest_);
  return ExitCode::kUsage;
}

ExitCode OriginCommand::run() const {
  if (paths_.empty()) {
    tools::complain(tools::MessageId::kUsage, "origin needs traces: convtrace origin DIR");
    return ExitCode::kUsage;
  }
  if (!digest_.empty()) return write_one_digest();
  diff::remove_unfinished_files_on_signals();
  diff::Outputs outputs("convtrace", std::cout, std::cerr);
  std::ostream* const json = outputs.open(report::json_path(json_, brief_));
  std::ostream* const html = outputs.open(html_);
  if (outputs.failed()) return ExitCode::kUsage;
  OriginResult result;
  std::string error;
  if (!judge(result, error)) {
    std::cerr << "convtrace: " << error << "\n";
    return ExitCode::kUsage;
  }
  if (json != nullptr)
    *json << (brief_ ? report::brief_json(brief_of(result)) : tools::dump_json(json_of(result), 2))
          << "\n";
  if (html != nullptr) write_html(result, *html);
  outputs.finish();
  if (!brief_)
    write_text(result, outputs.stdout_taken() ? diff::Terminal{} : diff::own_terminal(),
               outputs.people());
  outputs.flush();
  if (outputs.failed()) return ExitCode::kUsage;
  if (!result.origins.empty()) return ExitCode::kFindings;
  return result.incomplete.empty() ? ExitCode::kClean : ExitCode::kDamagedInput;
}

}  // namespace convtrace::origin
