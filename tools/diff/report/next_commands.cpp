#include "tools/diff/report/next_commands.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "tools/common/escape.h"
#include "tools/diff/facts/fact_groups.h"

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
  if (!record.kernel.empty() && record.op.empty())
    return {"kernel = " + tools::quote_toml(record.kernel)};
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
  for (const std::string& subject : subjects(root))
    lines.insert(lines.end(), {"[[rule]]", subject, "capture = \"snapshot\""});
  lines.emplace_back("EOF");
  return lines;
}

bool is_scalar(const RecordReport& record) {
  return record.base.stats.count <= 1 && record.cand.stats.count <= 1;
}

bool is_compiled(const DiffResult& result) {
  return result.base_command.compiled || result.cand_command.compiled;
}

/// The option that records the ops of a module; the root module has no name.
std::string ops_of(const std::string& scope) {
  return " --ops " + tools::quote_shell(scope.empty() ? "*" : scope);
}

/// @return whether the root is what a module's own code gave out: what it called was compared
/// before, or its class is not torch's. A stored output does not tell which line made it.
bool computes_itself(const RootReport& root) {
  const std::string& kind = root.code.qualified_class;
  return root.record.op.empty() && root.record.kernel.empty() &&
         role_of(root.record.slot) == Role::kOutput &&
         (!root.compared_inside.empty() || (!kind.empty() && !kind.starts_with("torch.")));
}

/// @return options that record more around the root: the ops of the module whose code changed a
/// value between calls or gave it out, or that used weights which were not compared; the states of
/// an optimizer whose updates differ; and kernels of compiled regions.
std::string further_records(const DiffResult& result) {
  const RootReport& root = *result.root;
  const std::string& scope = root.record.scope;
  const std::string also = std::string(is_compiled(result) ? " --compiled all" : "") +
                           (lacks_source(result.facts) ? " --source 1" : "");
  if (root.came_in) {
    const size_t dot = scope.rfind('.');
    return ops_of(dot == std::string::npos ? "" : scope.substr(0, dot)) + also;
  }
  if (root.weights_are(Shown::kNotCompared) || computes_itself(root)) return ops_of(scope) + also;
  return (root.record.phase == format::Phase::kOptimizer ? " --optimizer-state 1" : "") + also;
}

/// The name of the environment variable that a fact is about; "" if it is about none.
std::string variable_of(const std::string& fact) {
  constexpr std::string_view kSwitch = "switch.";
  if (!fact.starts_with(kSwitch)) return "";
  const std::string name = fact.substr(kSwitch.size());
  const bool upper = std::ranges::all_of(
      name, [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
  return upper ? name : "";
}

/// Sets, before a command, the environment variables that only one run had, or with another value.
std::string variables_text(const DiffResult& result, bool of_base) {
  std::string set, unset;
  for (const PreflightEntry& entry : result.preflight) {
    const std::string name = variable_of(entry.name);
    if (name.empty()) continue;
    const std::optional<std::string>& value = of_base ? entry.base : entry.cand;
    if (value) {
      set += name + '=' + tools::quote_shell(*value) + ' ';
    } else {
      unset += " -u " + name;
    }
  }
  return unset.empty() ? set : "env" + unset + ' ' + set;
}

/// The folder in which a run starts: its own, if that is on this machine.
fs::path folder_here(const RunCommand& run) {
  std::error_code unreachable;
  return fs::is_directory(run.directory, unreachable) ? run.directory : ".";
}

/// @return the path, from the folder of the run, of a file that the trace names from there, from
/// the script's folder or from a folder of PYTHONPATH; "" if there is none here.
std::string path_here(const RunCommand& run, const std::string& name) {
  fs::path script;
  for (const std::string& word : run.words)
    if (script.empty() && word.ends_with(".py")) script = word;
  std::vector<fs::path> folders = {script.parent_path(), fs::path()};
  std::istringstream python_path(run.python_path);
  for (std::string folder; std::getline(python_path, folder, ':');) folders.emplace_back(folder);
  for (const fs::path& folder : folders) {
    std::error_code unreachable;
    if (fs::is_regular_file(folder_here(run) / folder / name, unreachable))
      return (folder / name).string();
  }
  return "";
}

/// Goes on only if the files that the two runs had in two versions are those of this run: a block
/// that is pasted does not record one program twice.
std::string files_check(const RunCommand& run, const RunCommand& other) {
  constexpr size_t kChecked = 5;
  std::string sums;
  size_t count = 0;
  for (const auto& [name, hash] : run.files) {
    const auto theirs = other.files.find(name);
    if (theirs == other.files.end() || theirs->second == hash || count == kChecked) continue;
    const std::string path = path_here(run, name);
    if (path.empty() || path.find_first_of("\\\n\r") != std::string::npos) continue;
    sums += ' ' + tools::quote_shell(hash + "  " + path);
    ++count;
  }
  return sums.empty() ? "" : "printf '%s\\n'" + sums + " | b2sum -l 64 -c --quiet && ";
}

std::string words_text(const RunCommand& run, const RunCommand& other) {
  std::vector<std::string> words = run.words;
  const bool other_python = run.executable != other.executable && !run.executable.empty();
  if (!words.empty() && other_python && words[0].find('/') == std::string::npos)
    words[0] = run.executable;
  return words.empty() ? "COMMAND" : tools::shell_line(words);
}

/// A command that starts a program, with what the user's shell may lack: the directory, if it is
/// another one and exists here, environment variables, and the interpreter if the two runs had
/// different ones. @param other  the other run. @param variables  of variables_text().
/// @param convtrace  "convtrace run OPTIONS", made for the folder where the results belong.
std::string start_line(const RunCommand& run, const RunCommand& other, const std::string& variables,
                       const auto& convtrace) {
  std::error_code unreachable;
  const bool elsewhere = !fs::equivalent(folder_here(run), ".", unreachable);
  std::string line = elsewhere ? "(cd " + tools::quote_shell(run.directory) + " && " : "";
  line += files_check(run, other) + variables;
  if (!run.python_path.empty() || !other.python_path.empty())
    line += "PYTHONPATH=" + tools::quote_shell(run.python_path) + ' ';
  line += convtrace(std::string(elsewhere ? "\"$OLDPWD\"/" : "")) + " -- " + words_text(run, other);
  return elsewhere ? line + ')' : line;
}

/// "timm" of "package.timm".
std::string without_kind(const std::string& fact) {
  for (const std::string_view kind : {"package.", "version.", "switch."})
    if (fact.starts_with(kind)) return fact.substr(kind.size());
  return fact;
}

/// "timm 0.9" of a package, which installs it; else the name alone.
std::string to_put_back(const PreflightEntry& entry) {
  const bool is_package = entry.name.starts_with("package.") && entry.base;
  return without_kind(entry.name) + (is_package ? ' ' + *entry.base : "");
}

/// @return whether the package defines the class of the root's module, so that its code made the
/// root.
bool is_of_root(const PreflightEntry& entry, const RootReport& root) {
  const std::string& kind = root.code.qualified_class;
  std::string package = without_kind(entry.name);
  std::ranges::replace(package, '-', '_');
  return !kind.empty() && kind.substr(0, kind.find('.')) == package;
}

/// @return "environment (FUSED, SEED)" for an environment that differs.
std::string variables_named(const PreflightEntry& environment) {
  std::set<std::string> names;
  for (const auto& of_run : {environment.base, environment.cand}) {
    std::istringstream words(of_run.value_or(""));
    for (std::string word; words >> word;)
      if (const size_t end = word.find("=#"); end != word.npos) names.insert(word.substr(0, end));
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return "environment (" + text + ')';
}

/// @return the differences that the command line does not reproduce: files, packages, switches.
std::string differing_parts(const DiffResult& result) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> parts;
  const auto add = [&parts](const std::string& part) {
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  };
  for (const FactDifference& fact : result.facts) {
    if (fact.kind == FactKind::kCode) add(fact.name.substr(0, fact.name.find(": ")));
  }
  std::vector<PreflightEntry> entries = result.preflight;
  std::stable_partition(entries.begin(), entries.end(), [&](const PreflightEntry& entry) {
    return is_of_root(entry, *result.root);
  });
  for (const PreflightEntry& entry : entries) {
    const std::string_view name = entry.name;
    if (name == kEnvironment) {
      add(variables_named(entry));
    } else if (variable_of(entry.name).empty() && name != "host" && !name.starts_with("setting."))
      add(name == "compiled" ? "use of torch.compile" : to_put_back(entry));
  }
  for (const FactDifference& fact : result.facts)
    if (parts.empty() && fact.configuration) add("setting " + fact.module_class + ' ' + fact.name);
  std::string text;
  for (size_t i = 0; i < std::min(kNamed, parts.size()); ++i)
    text += (i == 0 ? "" : ", ") + tools::escape_text(parts[i]);
  const bool known = !result.base_command.files.empty() || !variables_text(result, true).empty();
  if (parts.empty() && !known) return "files, packages and environment";
  return parts.size() > kNamed ? text + " and " + std::to_string(parts.size() - kNamed) + " more"
                               : text;
}

/// @return whether the two runs were started in the same way, as far as the traces show.
bool starts_equally(const DiffResult& result) {
  const RunCommand& base = result.base_command;
  const RunCommand& cand = result.cand_command;
  return base.words == cand.words && base.directory == cand.directory &&
         base.executable == cand.executable && base.python_path == cand.python_path;
}

/// @return whether both runs are the same program, as far as the traces show: recording it again
/// shows only whether it is deterministic.
bool is_one_program(const DiffResult& result) {
  return result.ranks.size() <= 1 && starts_equally(result) && differing_parts(result).empty() &&
         variables_text(result, true) == variables_text(result, false);
}

/// @return whether unwritten memory may be the cause: a finding shows it, or a program that is not
/// deterministic makes different outputs of equal inputs.
bool may_be_unwritten(const DiffResult& result) {
  const RootReport& root = *result.root;
  const auto& finding = result.cause ? result.cause->finding : std::nullopt;
  if (finding) return finding->finding.kind == format::FindingKind::kNeverWritten;
  return is_one_program(result) && root.record.slot.starts_with("output:") && !root.came_in &&
         inputs_were_compared(root) && agrees(root.record.comparison.worst_input);
}

/// A separate line, since a run with filled memory computes other values.
void add_poison(const DiffResult& result, std::vector<std::string>& lines) {
  if (!may_be_unwritten(result)) return;
  const RunCommand& run = result.cand_command;
  lines.emplace_back("# is it memory that nobody wrote? a run in which new memory has a pattern:");
  lines.push_back(start_line(run, run, "", [](const std::string& here) {
    return "convtrace run --poison 1 --output " + here + "root-poison.ctrace";
  }));
  lines.emplace_back("convtrace findings root-poison.ctrace");
}

std::vector<std::string> repeat(const DiffResult& result) {
  std::vector<std::string> lines = {
      "# the traces hold no difference between the two programs: does one repeat?",
      repeat_command(result.base_command),
      "# if it does, data, files or the environment were changed: put them back, and record "
      "both again"};
  add_poison(result, lines);
  return lines;
}

/// The steps before those in which rounding hides every fault, and what a repetition differs by.
std::vector<std::string> before_hidden(const DiffResult& result) {
  const RunCommand &base = result.base_command, &cand = result.cand_command;
  if (base.words.empty() || cand.words.empty() || result.wholes) return {};
  const Hidden& hidden = *result.hidden;
  const bool many = result.ranks.size() > 1;
  if (many && (base.torchrun_ranks == 0 || cand.torchrun_ranks == 0)) return {};
  std::vector<std::string> lines;
  if (hidden.judged != 0) {
    const auto until = [&](const std::string& output, StepShift shift) {
      return [steps = "0-" + step_text(hidden.step - 1, shift),
              output = output + (many ? "/r%r.ctrace" : ".ctrace")](const std::string& here) {
        return "convtrace run --overwrite --output " + here + output + " --steps " + steps;
      };
    };
    const StepOffset& offset = result.step_offset;
    lines.push_back(start_line(base, cand, variables_text(result, true),
                               until("until-base", offset.of_base())));
    lines.push_back(start_line(cand, base, variables_text(result, false),
                               until("until-cand", offset.of_cand())));
    const std::string end = many ? "" : ".ctrace";
    lines.push_back(
        "convtrace-diff until-base" + end + " until-cand" + end +
        (offset.why == kOffsetAsked ? " --step-offset " + std::to_string(offset.steps) : ""));
  }
  lines.emplace_back("# its last lines are the comparison with --noise:");
  lines.push_back(repeat_command(base));
  return lines;
}

}  // namespace

std::string repeat_command(const RunCommand& run) {
  if (run.words.empty()) return "convtrace repeat";
  return start_line(run, run, "",
                    [](const std::string&) { return std::string("convtrace repeat"); });
}

std::string next_title(const DiffResult& result) {
  if (result.verdict == Verdict::kCannotTell)
    return result.hidden->judged != 0 ? "compare the steps before it alone, and see what the "
                                        "baseline differs by from run to run:"
                                      : "see what the baseline differs by from run to run:";
  if (result.root->offset) return "compare the steps that begin with the same weights:";
  return is_one_program(result) ? "see whether the program repeats:"
                                : "store these values in both runs, and compare them element by "
                                  "element:";
}

std::vector<std::string> next_commands(const DiffResult& result) {
  if (result.verdict == Verdict::kCannotTell) return before_hidden(result);
  const RootReport& root = *result.root;
  if (root.offset)
    return {"convtrace-diff " + tools::quote_shell(result.base_path) + ' ' +
            tools::quote_shell(result.cand_path) + " --step-offset " +
            std::to_string(result.step_offset.steps + *root.offset)};
  if (result.wholes) return {};  // stored values are of single ranks
  // No rule names what ranks exchange outside of modules.
  if (root.record.phase == format::Phase::kCommunication) return {};
  const bool is_number = is_scalar(root.record) && (!root.consumer || is_scalar(*root.consumer));
  // The elements of one number are known. The ops that a module made it with are not.
  const bool is_told = result.cause && result.cause->rule == "setting";
  if (is_number && (is_told || !computes_itself(root))) return {};
  // Such a cause is told by the data of several steps: the elements of one add nothing to it.
  constexpr std::string_view kOfSteps[] = {"order", "other-data", "generator"};
  if (root.record.phase == format::Phase::kData && result.cause &&
      std::ranges::find(kOfSteps, result.cause->rule) != std::end(kOfSteps))
    return {};
  // Both runs have stored it, or what became of it.
  if (root.record.elements || (root.consumer && root.consumer->elements)) return {};
  const RunCommand& of_base = result.base_command;
  const RunCommand& of_cand = result.cand_command;
  const std::string base_set = variables_text(result, true);
  const std::string cand_set = variables_text(result, false);
  const std::string parts = starts_equally(result) ? differing_parts(result) : "";
  if (is_one_program(result)) return repeat(result);
  // Elements of unlike types and shapes have no partners.
  if (root.record.comparison.verdict == Class::kShapeOrDtypeMismatch &&
      further_records(result).empty())
    return {};
  const uint32_t number = root.record.step;
  const std::string base = step_text(number, result.step_offset.of_base());
  const std::string cand = step_text(number, result.step_offset.of_cand());
  std::vector<std::string> lines = rule_file(root);
  const bool many = result.ranks.size() > 1;
  if (many && (of_base.torchrun_ranks == 0 || of_cand.torchrun_ranks == 0)) {
    // The command line of one rank does not start its job.
    lines.push_back("export CONVTRACE_STEPS=" + base + " CONVTRACE_CONFIG=$PWD/" + kRuleFile);
    if (cand != base) lines.push_back("# of the candidate: CONVTRACE_STEPS=" + cand);
    lines.emplace_back("# then start both jobs as before, each with another CONVTRACE_OUTPUT");
    return lines;
  }
  const std::string base_out = many ? "root-base" : "root-base.ctrace";
  const std::string cand_out = many ? "root-cand" : "root-cand.ctrace";
  const auto recording = [&](const std::string& output, const std::string& steps) {
    return [output = output + (many ? "/r%r.ctrace" : ""), steps,
            also = further_records(result)](const std::string& here) {
      return "convtrace run --overwrite --output " + here + output + " --steps " + steps + also +
             " --config " + here + kRuleFile;
    };
  };
  if (!parts.empty()) lines.push_back("# first put back the baseline's " + parts);
  lines.push_back(start_line(of_base, of_cand, base_set, recording(base_out, base)));
  if (!parts.empty()) lines.emplace_back("# then the candidate's again");
  lines.push_back(start_line(of_cand, of_base, cand_set, recording(cand_out, cand)));
  const StepOffset& offset = result.step_offset;
  // Traces of these steps alone lack an offset that the user gave, or that first weights showed.
  const bool is_lacking = offset.why == kOffsetAsked || (offset.steps != 0 && !offset.counted);
  lines.push_back("convtrace-diff " + base_out + ' ' + cand_out +
                  (is_lacking ? " --step-offset " + std::to_string(offset.steps) : ""));
  if (!many) add_poison(result, lines);
  return lines;
}

}  // namespace convtrace::diff
