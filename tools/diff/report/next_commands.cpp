#include "tools/diff/report/next_commands.h"

#include <algorithm>
#include <filesystem>

#include "tools/common/escape.h"

namespace convtrace::diff {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRuleFile = "convtrace-root.toml";

/// @param shift  of that run's steps.
std::string step_text(uint32_t step, StepShift shift) {
  return step == format::kNoStep ? "all" : std::to_string(step - std::min(step, shift.steps));
}

/// A pattern must not be empty, as the root module's path is.
std::string scope_pattern(const std::string& scope) { return scope.empty() ? "re:^$" : scope; }

/// The subjects of the rules: a kernel without a framework op, or modules by both names.
std::vector<std::string> subjects(const RootReport& root) {
  const RecordReport& record = root.record;
  if (!record.kernel.empty() && record.op.empty()) {
    return {"kernel = " + tools::quote_toml(record.kernel)};
  }
  std::vector<std::string> lines;
  const auto add = [&](const RecordReport& about) {
    for (const std::string& scope : {about.scope, about.cand_scope}) {
      std::string line = "scope = " + tools::quote_toml(scope_pattern(scope));
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
    }
  };
  add(record);
  if (root.consumer) add(*root.consumer);
  return lines;
}

std::vector<std::string> rule_file(const RootReport& root) {
  std::vector<std::string> lines = {std::string("cat > ") + kRuleFile + " <<'EOF'"};
  for (const std::string& subject : subjects(root)) {
    lines.insert(lines.end(), {"[[rule]]", subject, "capture = \"snapshot\""});
  }
  lines.emplace_back("EOF");
  return lines;
}

bool is_scalar(const RecordReport& record) {
  return record.base.stats.count <= 1 && record.cand.stats.count <= 1;
}

/// What is recorded besides the root: the ops of the module in whose code a value changed that no
/// module made, and states of an optimizer whose updates differ.
std::string further_records(const RootReport& root) {
  if (root.came_in) {
    const std::string& scope = root.record.scope;
    const size_t dot = scope.rfind('.');
    return " --ops " + tools::quote_shell(dot == std::string::npos ? "*" : scope.substr(0, dot));
  }
  return root.record.phase == format::Phase::kOptimizer ? " --optimizer-state 1" : "";
}

/// Sets what the user's shell may lack: the directory, if it is another one and exists here,
/// PYTHONPATH, and the interpreter if the two runs had different ones. @param other  the other run.
/// @param what  is recorded: options of `convtrace run`.
std::string run_again(const char* output, const std::string& what, const RunCommand& run,
                      const RunCommand& other) {
  std::error_code unreachable;
  const bool elsewhere = fs::is_directory(run.directory, unreachable) &&
                         !fs::equivalent(run.directory, ".", unreachable);
  const std::string here = elsewhere ? "\"$OLDPWD\"/" : "";
  std::string line;
  if (elsewhere) line += "(cd " + tools::quote_shell(run.directory) + " && ";
  if (!run.python_path.empty() || !other.python_path.empty())
    line += "PYTHONPATH=" + tools::quote_shell(run.python_path) + ' ';
  line +=
      "convtrace run --output " + here + output + what + " --config " + here + kRuleFile + " --";
  std::vector<std::string> words = run.words;
  const bool other_python = run.executable != other.executable && !run.executable.empty();
  if (!words.empty() && other_python && words[0].find('/') == std::string::npos)
    words[0] = run.executable;
  for (const std::string& word : words) line += ' ' + tools::quote_shell(word);
  if (words.empty()) line += " COMMAND";
  return elsewhere ? line + ')' : line;
}

/// What the baseline had otherwise, as far as the traces tell: files, packages, environment variables.
std::string differing_parts(const DiffResult& result) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> parts;
  const auto add = [&parts](const std::string& part) {
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  };
  for (const FactDifference& fact : result.facts) {
    if (fact.kind == FactKind::kCode) add(fact.name.substr(0, fact.name.find(": ")));
  }
  for (const PreflightEntry& entry : result.preflight) add(entry.name);
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, parts.size()); ++i)
    text += (i == 0 ? "" : ", ") + tools::escape_text(parts[i]);
  if (parts.size() > kNamed) text += " and " + std::to_string(parts.size() - kNamed) + " more";
  return text.empty() ? "files, packages and environment" : text;
}

}  // namespace

std::vector<std::string> next_commands(const DiffResult& result) {
  if (result.wholes) return {};  // stored values are of single ranks
  const RootReport& root = *result.root;
  if (is_scalar(root.record) && (!root.consumer || is_scalar(*root.consumer))) return {};
  if (root.record.elements) return {};  // both runs have stored it
  const uint32_t number = root.record.step;
  const std::string base = step_text(number, result.step_offset.of_base());
  const std::string cand = step_text(number, result.step_offset.of_cand());
  std::vector<std::string> lines = rule_file(root);
  if (result.ranks.size() > 1) {
    // The command line of one rank does not start its job.
    lines.push_back("export CONVTRACE_STEPS=" + base + " CONVTRACE_CONFIG=$PWD/" + kRuleFile);
    if (cand != base) lines.push_back("# of the candidate: CONVTRACE_STEPS=" + cand);
    lines.emplace_back("# then start both jobs as before, each with another CONVTRACE_OUTPUT");
    return lines;
  }
  const bool one_command = result.base_command.words == result.cand_command.words;
  const std::string parts = one_command ? differing_parts(result) : "";
  if (one_command) lines.push_back("# first put back the baseline's " + parts);
  const std::string also = further_records(root);
  const auto what = [&also](const std::string& steps) { return " --steps " + steps + also; };
  lines.push_back(
      run_again("root-base.ctrace", what(base), result.base_command, result.cand_command));
  if (one_command) lines.push_back("# then the candidate's again");
  lines.push_back(
      run_again("root-cand.ctrace", what(cand), result.cand_command, result.base_command));
  lines.emplace_back("convtrace-diff root-base.ctrace root-cand.ctrace");
  return lines;
}

}  // namespace convtrace::diff
