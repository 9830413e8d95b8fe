#include "tools/diff/expect/proposal.h"

#include <algorithm>
#include <set>

#include "tools/common/escape.h"
#include "tools/trace/model/slot.h"

namespace convtrace::diff {
namespace {

constexpr size_t kMostOfAKind = 8;

/// A TOML string.
std::string toml_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
      quoted += letter;
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += "\\u00";
      quoted += kHex[byte >> 4U];
      quoted += kHex[byte & 15U];
    } else {
      quoted += letter;
    }
  }
  return quoted + "\"";
}

/// A pattern that matches one name alone.
std::string pattern_of(const std::string& name) {
  if (name.find_first_of("*?") == name.npos && !name.starts_with("re:")) return name;
  std::string expression = "re:^";
  for (const char letter : name) {
    if (std::string_view("\\^$.|?*+()[]{}").find(letter) != std::string_view::npos)
      expression += '\\';
    expression += letter;
  }
  return expression + "$";
}

}  // namespace

void ProposalRows::row(const RecordReport& record, bool in_base, bool in_cand) {
  const Class verdict = record.comparison.verdict;
  if (!in_base || !in_cand || record.comparison.waived ||
      is_evidence(role_of(record.slot), verdict))
    return;
  const Agreement now = verdict == Class::kIdentical ? Agreement::kBits
                        : verdict <= Class::kSuspicious && verdict != Class::kBitDifference
                            ? Agreement::kRounding
                            : Agreement::kNone;
  steps_[record.step] = std::max(steps_[record.step], now);
  if (now == Agreement::kNone && !has_diverged_) {
    has_diverged_ = true;
    diverged_in_ = record.step;
  }
  const std::pair key(record.phase, record.scope);
  all_[key] = std::max(all_[key], now);
  if (!has_diverged_ || record.step == diverged_in_) first_[key] = std::max(first_[key], now);
}

ProposalRows::Agreement ProposalRows::below(const Modules& modules, format::Phase phase,
                                            const std::string& path) {
  Agreement worst = Agreement::kNothing;
  const auto own = modules.find({phase, path});
  if (own != modules.end()) worst = own->second;
  const std::string inside = path.empty() ? "" : path + ".";
  for (auto at = modules.lower_bound({phase, inside}); at != modules.end(); ++at) {
    if (at->first.first != phase || !at->first.second.starts_with(inside)) break;
    worst = std::max(worst, at->second);
  }
  return worst;
}

/// One clause for a module below which everything agrees, else those of the modules inside.
void ProposalRows::propose(const Modules& modules, format::Phase phase, const std::string& path,
                           const std::string& steps, std::string& text) const {
  const Agreement agreement = below(modules, phase, path);
  const bool is_said = &modules == &first_ && below(all_, phase, path) != Agreement::kNone;
  if (agreement == Agreement::kNothing || is_said) return;
  if (agreement != Agreement::kNone) {
    text += "\n[[unchanged]]\n";
    if (!path.empty()) text += "scope = " + toml_text(pattern_of(path)) + "\n";
    text += "phase = " + toml_text(std::string(to_string(phase))) + "\n" + steps;
    if (agreement == Agreement::kBits) text += "to = \"bit\"\n";
    return;
  }
  std::set<std::string> children;
  const std::string inside = path.empty() ? "" : path + ".";
  for (const auto& [key, ignored] : modules) {
    const std::string& name = key.second;
    if (key.first != phase || name.size() <= inside.size() || !name.starts_with(inside)) continue;
    children.insert(name.substr(0, name.find('.', inside.size())));
  }
  for (const std::string& child : children) propose(modules, phase, child, steps, text);
}

std::string ProposalRows::text(const DiffResult& result) const {
  std::string text = "# What holds between these two runs. Keep what the change promises.\n";
  for (const std::string& why : result.incomplete)
    text += "# Not kept by these runs, which are not complete: " + tools::escape_text(why) + "\n";
  const bool same =
      std::ranges::all_of(steps_, [](const auto& step) { return step.second == Agreement::kBits; });
  if (same && result.facts.empty() && result.preflight.empty()) text += "same_program = true\n";
  std::set<format::Phase> phases;
  for (const auto& [key, ignored] : all_) phases.insert(key.first);
  // What agrees to the end, then what agrees up to the first difference.
  if (!has_diverged_ && !all_.empty()) {
    text += "\n[[unchanged]]\n";
    if (same) text += "to = \"bit\"\n";
    phases.clear();
  }
  for (const format::Phase phase : phases) propose(all_, phase, "", "", text);
  if (has_diverged_) {
    const std::string steps = "steps = \"0-" + std::to_string(diverged_in_) + "\"\n";
    for (const format::Phase phase : phases) propose(first_, phase, "", steps, text);
  }
  std::set<std::string> changed;
  for (const RecordReport& birth : result.births) {
    std::string clause = "\n[[changed]]\nscope = " +
                         (birth.scope.empty() ? "\"\"" : toml_text(pattern_of(birth.scope))) +
                         "\nphase = " + toml_text(std::string(to_string(birth.phase))) +
                         "\nslot = " + toml_text(pattern_of(birth.slot)) + "\n";
    if (changed.size() < kMostOfAKind && changed.insert(clause).second) text += clause;
  }
  size_t files = 0;
  for (const FactDifference& fact : result.facts) {
    if (fact.kind != FactKind::kCode || !fact.cand || files++ == kMostOfAKind) continue;
    text += "\n[[changed]]\ncode = " + toml_text(pattern_of(fact.name)) + "\n";
  }
  if (result.cand_findings.errors == 0) text += "\n[[never]]\nfindings = \"error\"\n";
  return text;
}

}  // namespace convtrace::diff
