#include <algorithm>
#include <charconv>
#include <iostream>

#include "tools/common/commands.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/report/outputs.h"
#include "tools/trace/names/map_file.h"
#include "tools/weights/report.h"
#include "tools/weights/weights.h"

namespace convtrace::weights {

using tools::ExitCode;

namespace {

bool read_names(const std::string& path, Names& names, std::string& error) {
  if (path.empty()) return true;
  diff::DiffRules rules;
  if (!diff::read_map(path, rules, error)) return false;
  names = {std::move(rules.fused), std::move(rules.moved), std::move(rules.renames)};
  // The longest matching path of A applies.
  std::ranges::stable_sort(names.modules, std::ranges::greater(),
                           [](const diff::ScopeRename& rename) { return rename.base.size(); });
  return true;
}

/// @return false if the text is no step; without a text the last one is chosen.
bool read_choice(const std::string& text, Choice& choice) {
  choice.start = text == "start";
  if (choice.start || text.empty()) return true;
  uint32_t step = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), step);
  choice.step = step;
  return failed == std::errc() && end == text.data() + text.size();
}

struct Options {
  std::string a, b, map, json, step_a, step_b;
};

ExitCode compare_weights(const Options& options) {
  Names names;
  Weights a, b;
  std::string error;
  if (!read_names(options.map, names, error) || !read_weights(options.a, a, error) ||
      !read_weights(options.b, b, error)) {
    std::cerr << "convtrace: " << error << "\n";
    return ExitCode::kUsage;
  }
  Choice of_a, of_b;
  if (!read_choice(options.step_a, of_a) || !read_choice(options.step_b, of_b))
    return ExitCode::kUsage;
  for (const std::string& why : {refusal(a, of_a), refusal(b, of_b)}) {
    if (why.empty()) continue;
    std::cerr << "convtrace: " << numbered(tools::MessageId::kUsage, tools::escape_text(why))
              << "\n";
    return ExitCode::kUsage;
  }
  diff::remove_unfinished_files_on_signals();
  diff::Outputs outputs("convtrace", std::cout, std::cerr);
  std::ostream* const json = outputs.open(options.json);
  if (outputs.failed()) return ExitCode::kUsage;
  const Comparison result = compare(a, b, names, of_a, of_b);
  if (json != nullptr) *json << tools::dump_json(json_of(result), 2) << "\n";
  outputs.finish();
  write_text(result, outputs.stdout_taken() ? diff::Terminal{} : diff::own_terminal(),
             outputs.people());
  outputs.flush();
  if (outputs.failed()) return ExitCode::kUsage;
  if (result.faults() != 0) return ExitCode::kFindings;
  const bool known = result.count(Verdict::kNotKnown) == 0 && !result.parameters.empty();
  return known && a.incomplete.empty() && b.incomplete.empty() ? ExitCode::kClean
                                                               : ExitCode::kDamagedInput;
}

}  // namespace

void add_weights(tools::Commands& commands) {
  auto [command, options] = commands.add<Options>(
      "weights", "Whether two programs hold the same weights: a trainer and an engine, say",
      compare_weights);
  command.add_option("A", options.a, "A trace, or a folder of traces, one a rank")->required();
  command.add_option("B", options.b, "The same of the other program")->required();
  const auto is_step = [](const std::string& text) {
    Choice choice;
    return read_choice(text, choice) ? "" : "takes the number of a step, or start";
  };
  command
      .add_option("--step-a", options.step_a,
                  "A's weights after this step, or start: before its first update; default: the "
                  "last")
      ->type_name("N|start")
      ->check(is_step);
  command.add_option("--step-b", options.step_b, "The same of B")
      ->type_name("N|start")
      ->check(is_step);
  command
      .add_option("--map", options.map,
                  "Names in the other program (TOML: [modules], [parameters], [fused])")
      ->type_name("FILE");
  command.add_option("--json", options.json, "Write everything as JSON (- for stdout)")
      ->type_name("F");
  command.footer(
      "Exit codes: 0 the same (also rounded to another type); 4 not; 3 not known, or a trace is "
      "unclosed or damaged; 2 usage.");
}

}  // namespace convtrace::weights
