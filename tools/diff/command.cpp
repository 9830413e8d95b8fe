#include "tools/diff/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/exit_code.h"
#include "tools/common/reference.h"
#include "tools/common/text.h"
#include "tools/diff/expect/contract_report.h"
#include "tools/diff/expect/judged.h"
#include "tools/diff/expect/proposal.h"
#include "tools/diff/page/report_html.h"
#include "tools/diff/ranks/diff.h"
#include "tools/diff/report/reports.h"
#include "tools/report/help.h"
#include "tools/report/outputs.h"
#include "tools/trace/names/map_file.h"

namespace convtrace::diff {
namespace {

/// A progress line for a person at a terminal.
class Progress {
 public:
  explicit Progress(std::ostream& out) : out_(out), begun_(Clock::now()), shown_(begun_) {}
  ~Progress() {
    if (visible_) out_ << kClearLine << std::flush;
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// @param done, @param total  records of both runs.
  void update(uint64_t done, uint64_t total) {
    const Clock::time_point now = Clock::now();
    if (now - begun_ < kQuiet || now - shown_ < kEvery || done == 0) return;
    shown_ = now;
    visible_ = true;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    const double speed = static_cast<double>(done) / seconds;
    out_ << kClearLine << tools::count_text(done) << " records, "
         << tools::number_text(speed * 1e-6, 3) << " M/s";
    if (done <= total) {
      const double left = static_cast<double>(total - done) / speed;
      out_ << ", " << done * 100 / std::max<uint64_t>(total, 1) << " %, "
           << static_cast<uint64_t>(left) + 1 << " s left";
    }
    out_ << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;
  /// A short comparison shows no progress.
  static constexpr std::chrono::milliseconds kQuiet{1000}, kEvery{200};
  static constexpr const char* kClearLine = "\r\x1b[K";

  std::ostream& out_;
  Clock::time_point begun_, shown_;
  bool visible_ = false;
};

using tools::DiffExitCode;

struct Options {
  DiffInputs inputs;
  std::string json, html, junit, csv;  ///< empty: not asked for; "-": standard output
  std::string map;
  std::vector<std::string> tolerances, ignored;
  std::string exact = "auto", layouts = "auto";
  std::string ranks = "all";
  bool brief = false;    ///< the JSON is a short answer
  std::string contract;  ///< path; empty: none
  bool propose = false;  ///< write a contract to standard output
};

void describe_options(CLI::App& app, Options& options) {
  app.add_option("BASE", options.inputs.base, "trace, or folder of traces, of the run to trust")
      ->required();
  app.add_option("CAND", options.inputs.cand, "trace, or folder of traces, of the run in doubt")
      ->required();
  app.add_option("--noise", options.inputs.noise,
                 "other runs of the baseline: what they differ by is noise")
      ->type_name("OTHER_BASE");
  app.add_option("--tol", options.tolerances,
                 "what values may differ by, in units of their size: PATTERN is a glob, or re: and "
                 "an expression, over module paths, ops, kernels and slots")
      ->type_name("PATTERN=X")
      ->check([](const std::string& word) {
        return parse_tolerance(word) ? "" : "takes PATTERN=X with X a number of 0 or more";
      });
  app.add_option("--ignore", options.ignored,
                 "values that may differ in any way: PATTERN as for --tol, over module paths, ops, "
                 "kernels and slots")
      ->type_name("PATTERN")
      ->check([](const std::string& word) {
        return parse_ignored(word) ? "" : "takes a glob, or re: and an expression";
      });
  app.add_option("--exact", options.exact,
                 "whether any difference of bits counts; auto: where nothing differs between the "
                 "runs and they can repeat")
      ->type_name("on|off|auto")
      ->check(CLI::IsMember({"on", "off", "auto"}));
  app.add_flag("--allow-incomplete", options.inputs.allow_incomplete,
               "exit 0 where what was compared agrees, even if a run ended early, is damaged or "
               "misses steps or ranks");
  app.add_option("--step-offset", options.inputs.rules.step_offset,
                 "step of CAND = step of BASE + N; else what the optimizers' own counters say")
      ->type_name("N")
      ->check(CLI::Range(-int64_t{format::kNoStep} + 1, int64_t{format::kNoStep} - 1));
  app.add_option("--layouts", options.layouts,
                 "ranks: compare rank with rank; whole: put together what the ranks of a run hold; "
                 "auto: whole where the runs divide their work among ranks in two ways")
      ->type_name("auto|ranks|whole")
      ->check(CLI::IsMember({"auto", "ranks", "whole"}));
  app.add_option("--ranks", options.ranks,
                 "of several ranks: those to compare with each other, too; of the others a step is "
                 "not read whose sums are equal in both runs. The verdict is the same")
      ->type_name("0-3,7")
      ->check([](const std::string& text) {
        return settings::StepSet::parse_ranks(text).ok() ? "" : "takes ranks, as 0-3,7";
      });
  app.add_option("--map", options.map,
                 "TOML file: ranks, modules and parameters that have other names, and what values "
                 "of ranks make together")
      ->type_name("F");
  app.add_option("--json", options.json, "write everything found as JSON (- for stdout)")
      ->type_name("F");
  auto* expect = app.add_option("--expect", options.contract,
                                "TOML file: what must agree, must differ, must run; the report and "
                                "the exit code are about it")
                     ->type_name("F");
  auto* init = app.add_flag("--expect-init", options.propose,
                            "instead of a report write a file for --expect that these runs keep");
  init->excludes(expect);
  app.add_flag("--brief", options.brief,
               "the answer alone, as JSON of at most 2 kB: to F of --json, else to stdout");
  app.add_option("--html", options.html, "write a page")->type_name("F");
  app.add_option("--junit", options.junit, "write JUnit XML (- for stdout)")->type_name("F");
  app.add_option("--csv", options.csv, "write one row per compared value (- for stdout)")
      ->type_name("F");
  for (CLI::Option* const one : {expect, init})
    for (const char* const other : {"--html", "--csv"}) one->excludes(app.get_option(other));
  for (const char* const other : {"--json", "--junit", "--brief"})
    init->excludes(app.get_option(other));
  app.set_version_flag("--version", "convtrace-diff " CONVTRACE_VERSION);
  app.failure_message(tools::usage_message);
  report::lay_out_help(app);
  app.footer(
      "Exit codes: 0 identical or rounding, 1 diverged, 2 usage or unreadable input, "
      "3 not comparable, incomplete or hidden by rounding, 4 values agree but a trace holds "
      "error-level findings.");
  report::add_examples(app, {"convtrace-diff base.ctrace new.ctrace --html report.html",
                             "convtrace-diff base.ctrace new.ctrace --noise base2.ctrace",
                             "convtrace-diff base.ctrace new.ctrace --brief"});
}

DiffExitCode exit_code(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame: return DiffExitCode::kSame;
    case Verdict::kDiverged: return DiffExitCode::kDiverged;
    case Verdict::kNotComparable:
    case Verdict::kIncomplete:
    case Verdict::kCannotTell: return DiffExitCode::kNotComparable;
    case Verdict::kFindings: return DiffExitCode::kFindings;
  }
  return DiffExitCode::kUsage;
}

/// @return false after a line on `err`.
bool read_rules(const Options& options, DiffInputs& inputs, std::ostream& err) {
  std::string error;
  if (!options.map.empty() && !read_map(options.map, inputs.rules, error)) {
    err << "convtrace-diff: " << error << "\n";
    return false;
  }
  inputs.ranks = settings::StepSet::parse_ranks(options.ranks).value();
  for (const std::string& word : options.tolerances) {
    if (auto rule = parse_tolerance(word)) inputs.rules.tolerances.push_back(*std::move(rule));
  }
  for (const std::string& word : options.ignored) {
    if (auto rule = parse_ignored(word)) inputs.rules.ignored.push_back(*std::move(rule));
  }
  if (options.exact != "auto")
    inputs.rules.exact = options.exact == "on" ? ExactChoice::kOn : ExactChoice::kOff;
  if (options.layouts != "auto")
    inputs.rules.layouts = options.layouts == "whole" ? LayoutChoice::kWhole : LayoutChoice::kRanks;
  return true;
}

DiffExitCode exit_code(Kept kept) {
  return kept == Kept::kKept     ? DiffExitCode::kSame
         : kept == Kept::kBroken ? DiffExitCode::kDiverged
                                 : DiffExitCode::kNotComparable;
}

/// Compares by a contract, or proposes one.
DiffExitCode compare_by_contract(const Options& options, const DiffInputs& inputs,
                                 std::ostream& out, std::ostream& err, Terminal terminal) {
  Outputs outputs("convtrace-diff", out, err);
  std::string error;
  const auto failed = [&] {
    err << "convtrace-diff: " << error << "\n";
    return DiffExitCode::kUsage;
  };
  Contract contract;
  if (!options.propose && !read_contract(options.contract, contract, error)) return failed();
  std::ostream* json = outputs.open(report::json_path(options.json, options.brief));
  std::ostream* junit = outputs.open(options.junit);
  if (outputs.failed()) return DiffExitCode::kUsage;
  ContractRows rows(contract);
  ProposalRows proposal;
  RowSink* const sink = options.propose ? static_cast<RowSink*>(&proposal) : &rows;
  DiffResult result;
  Runs runs;
  if (!run_diff(inputs, sink, result, error, &runs)) return failed();
  if (options.propose) {
    out << proposal.text(result) << std::flush;
    return out ? DiffExitCode::kSame : DiffExitCode::kUsage;
  }
  const JudgedContract judged = rows.judge(result, runs.base, runs.cand);
  const ContractReport report{contract, judged, result};
  if (json != nullptr)
    *json << (options.brief ? report::brief_json(brief_of(report))
                            : tools::dump_json(json_of(report), 2))
          << "\n";
  if (junit != nullptr) write_junit(report, *junit);
  outputs.finish();
  if (outputs.stdout_taken()) terminal = {};
  if (!options.brief) write_text(report, terminal, outputs.people());
  outputs.flush();
  return outputs.failed() ? DiffExitCode::kUsage : exit_code(judged.kept());
}

DiffExitCode compare_and_report(const Options& options, std::ostream& out, std::ostream& err,
                                Terminal terminal) {
  // Opened before anything is compared: a bad path costs no waiting.
  Outputs outputs("convtrace-diff", out, err);
  std::string error;
  DiffInputs inputs = options.inputs;
  if (!read_rules(options, inputs, err)) return DiffExitCode::kUsage;
  if (options.propose || !options.contract.empty())
    return compare_by_contract(options, inputs, out, err, terminal);
  std::ostream* json = outputs.open(report::json_path(options.json, options.brief));
  std::ostream* html = outputs.open(options.html);
  std::ostream* junit = outputs.open(options.junit);
  std::ostream* csv = outputs.open(options.csv);
  if (outputs.failed()) return DiffExitCode::kUsage;

  std::optional<CsvReport> csv_rows;
  PageRows page_rows;
  RowSinks rows;
  if (csv != nullptr) rows.add(csv_rows.emplace(*csv));
  if (html != nullptr) rows.add(page_rows);
  DiffResult result;
  std::optional<Progress> progress;
  if (terminal.progress) {
    progress.emplace(err);
    inputs.on_progress = [&](uint64_t done, uint64_t total) { progress->update(done, total); };
  }
  const bool compared = run_diff(inputs, rows.empty() ? nullptr : &rows, result, error);
  progress.reset();
  if (!compared) {
    err << "convtrace-diff: " << error << "\n";
    return DiffExitCode::kUsage;
  }
  if (json != nullptr)
    *json << (options.brief ? report::brief_json(brief_of(result))
                            : tools::dump_json(json_report(result), 2))
          << "\n";
  if (html != nullptr) write_html_report(result, page_rows, *html);
  if (junit != nullptr) write_junit_report(result, *junit);
  outputs.finish();
  if (outputs.stdout_taken()) terminal = {};
  if (!options.brief) write_text_report(result, terminal, outputs.people());
  outputs.flush();
  return outputs.failed() ? DiffExitCode::kUsage : exit_code(result.verdict);
}

}  // namespace

int diff_command(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                 Terminal terminal) {
  CLI::App app("Names the first big divergence between two traced runs.", "convtrace-diff");
  Options options;
  describe_options(app, options);
  if (argc == 3 && std::string_view(argv[1]) == "--generate") {  // for the build
    const bool man = std::string_view(argv[2]) == "man";
    out << (man ? tools::manual_page(app) : tools::bash_completion(app));
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& parsed) {
    // --help and --version come this way too, with code 0.
    return app.exit(parsed, out, err) == 0 ? 0 : static_cast<int>(DiffExitCode::kUsage);
  }
  return static_cast<int>(compare_and_report(options, out, err, terminal));
}

}  // namespace convtrace::diff
