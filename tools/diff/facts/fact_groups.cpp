#include "tools/diff/facts/fact_groups.h"

#include <algorithm>
#include <tuple>

#include "tools/common/text.h"
#include "tools/diff/facts/line_diff.h"
#include "tools/diff/model/name_pattern.h"

namespace convtrace::diff {
namespace {

constexpr std::string_view kCode = "code.", kPython = "version.python", kSourceEnd = ".py.",
                           kClass = ": class ";

std::string_view version_of(const std::map<std::string, std::string>& facts) {
  const auto found = facts.find(std::string(kPython));
  if (found == facts.end()) return {};
  const std::string_view text = found->second;
  return text.substr(0, text.rfind('.'));
}

/// The file and the class of "model.py.Attention". For "__main__.Attention", which is in no file,
/// the Python module and the class; for a file no class.
std::pair<std::string, std::string> file_and_class(std::string_view name) {
  const size_t end = name.find(kSourceEnd);
  if (end != name.npos) {
    return {std::string(name.substr(0, end + kSourceEnd.size() - 1)),
            std::string(name.substr(end + kSourceEnd.size()))};
  }
  const size_t dot = name.rfind('.');
  if (name.ends_with(".py") || dot == name.npos) return {std::string(name), ""};
  return {std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
}

/// "pkg.model" of "pkg/model.py".
std::string python_module(std::string_view file) {
  std::string name(file.substr(0, file.ends_with(".py") ? file.size() - 3 : file.size()));
  std::ranges::replace(name, '/', '.');
  return name;
}

/// @return the name of the script in the facts about its code: that of its file.
std::string script_of(const format::TraceMeta& meta) {
  for (const std::string& word : meta.command_line)
    if (word.ends_with(".py")) return word.substr(word.rfind('/') + 1);
  return "";
}

/// Gives the facts about a file, and about its classes, another name.
void rename(std::map<std::string, std::string>& facts, const std::string& from,
            const std::string& to) {
  std::map<std::string, std::string> renamed;
  for (auto& [name, value] : facts) {
    const bool is_of_file = name == from || name.starts_with(from + '.');
    renamed.emplace(is_of_file ? to + name.substr(from.size()) : name, std::move(value));
  }
  facts = std::move(renamed);
}

}  // namespace

std::string_view to_string(FactKind value) {
  constexpr std::string_view kTexts[] = {"module", "optimizer", "generator", "code"};
  return kTexts[static_cast<size_t>(value)];
}

std::string code_name(std::string_view fact) {
  if (!fact.starts_with(kCode)) return "";
  const auto [file, kind] = file_and_class(fact.substr(kCode.size()));
  return kind.empty() ? file : file + std::string(kClass) + kind;
}

std::map<std::string, std::string> parse_settings(std::string_view text) {
  std::map<std::string, std::string> settings;
  size_t begin = 0;
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (i < text.size() && quote != 0) {
      if (c == '\\') ++i;
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '\'' || c == '"') quote = c;
    depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
    if (i < text.size() && (c != ',' || depth > 0)) continue;
    if (i == text.size() && (depth > 0 || quote != 0)) break;  // the text was truncated here
    const std::string_view part = text.substr(begin, std::min(i, text.size()) - begin);
    const size_t equals = part.find('=');
    if (equals != part.npos)
      settings.emplace(std::string(part.substr(0, equals)), std::string(part.substr(equals + 1)));
    begin = std::min(i + 2, text.size());  // ", "
  }
  return settings;
}

bool is_class(std::string_view name, std::string_view path) {
  const size_t end = name.find(kClass);
  if (end == name.npos) return false;
  const std::string kind = '.' + std::string(name.substr(end + kClass.size()));
  return path == python_module(name.substr(0, end)) + kind || path == "__main__" + kind;
}

bool is_class_named(std::string_view name, std::string_view kind) {
  const size_t end = name.find(kClass);
  if (end == name.npos) return false;
  const std::string_view path = name.substr(end + kClass.size());
  return path.substr(path.rfind('.') + 1) == kind;
}

bool is_class_at(std::string_view name, const CodePlace& place) {
  const size_t end = name.find(kClass);
  if (end == name.npos) return false;
  const std::string_view file = name.substr(0, end);
  const std::string kind = '.' + std::string(name.substr(end + kClass.size()));
  if (place.qualified_class == python_module(file) + kind) return true;
  // A script's module is not named after its file.
  return place.forward.substr(0, place.forward.rfind(':')) == file &&
         place.qualified_class.ends_with(kind);
}

std::vector<FactDifference> code_differences(const format::TraceMeta& base,
                                             const format::TraceMeta& cand) {
  std::map<std::string, std::string> a(base.facts.begin(), base.facts.end());
  const std::map<std::string, std::string> b(cand.facts.begin(), cand.facts.end());
  // Two scripts are versions of one program: the baseline's is called as the candidate's.
  const std::string script = script_of(base), other = script_of(cand);
  const bool two = !script.empty() && !other.empty() && script != other;
  if (two && !b.contains(std::string(kCode) + script) && !a.contains(std::string(kCode) + other)) {
    for (const std::string_view prefix : {kCode, kSource})
      rename(a, std::string(prefix) + script, std::string(prefix) + other);
  }
  const auto value = [](const auto& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::nullopt : std::optional(found->second);
  };
  // Fingerprints of classes depend on the version of Python.
  const bool classes_compare = version_of(a) == version_of(b);
  auto all = a;
  all.insert(b.begin(), b.end());
  std::map<std::string, std::vector<FactDifference>> by_file;
  for (const auto& [fact, ignored] : all) {
    if (!fact.starts_with(kCode)) continue;
    const auto [file, kind] = file_and_class(std::string_view(fact).substr(kCode.size()));
    const auto ours = value(a, fact), theirs = value(b, fact);
    // A class that only one run used is reported with its module.
    if (ours == theirs || (!kind.empty() && (!classes_compare || !ours || !theirs))) continue;
    const std::string source = std::string(kSource) + fact.substr(kCode.size());
    const auto our_source = value(a, source), their_source = value(b, source);
    FactDifference changed{
        .kind = FactKind::kCode, .name = code_name(fact), .base = ours, .cand = theirs};
    if (our_source && their_source) {
      changed.lines = line_diff(*our_source, *their_source);
      if (changed.lines.empty()) changed.lines = {" no line of its source differs"};
    }
    by_file[file].push_back(std::move(changed));
  }
  std::vector<FactDifference> found;
  for (auto& [file, differences] : by_file) {
    // If classes differ, their file need not be listed, too, unless its lines are known: they are
    // those of the classes and what changed beside them.
    const bool only_file = differences.size() == 1;
    const bool with_lines =
        std::ranges::any_of(differences, [&name = file](const FactDifference& one) {
          return one.name == name && !one.lines.empty();
        });
    for (FactDifference& one : differences) {
      if (one.name != file && with_lines) one.lines.clear();
      if (only_file || with_lines || one.name != file) found.push_back(std::move(one));
    }
  }
  return found;
}

bool lacks_source(std::span<const FactDifference> facts) {
  const auto is_changed = [](const FactDifference& one) {
    return one.kind == FactKind::kCode && one.base && one.cand;
  };
  return std::ranges::any_of(facts, is_changed) &&
         std::ranges::all_of(facts, &std::vector<std::string>::empty, &FactDifference::lines);
}

std::vector<FactDifference> grouped(std::span<const FactDifference> facts) {
  const auto key_of = [](const FactDifference& f) {
    return std::tuple(f.kind, f.module_class, f.name, f.base, f.cand, f.step, shape_of(f.scope));
  };
  std::vector<FactDifference> groups;
  std::vector<NameFamily> modules;
  std::map<decltype(key_of(facts[0])), size_t> known;
  for (const FactDifference& fact : facts) {
    const auto [entry, is_new] = known.try_emplace(key_of(fact), groups.size());
    const size_t at = entry->second;
    if (is_new) {
      groups.push_back(fact);
      modules.emplace_back();
    }
    if (!is_new)
      groups[at].parameters.insert(groups[at].parameters.end(), fact.parameters.begin(),
                                   fact.parameters.end());
    modules[at].add(fact.scope);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].scope = modules[i].pattern;
    groups[i].modules = modules[i].names.size();
  }
  std::ranges::stable_sort(groups, {}, [](const FactDifference& f) {
    // A fact that only one run has is mostly a consequence of others, so it comes after them.
    const bool one_sided = f.base.has_value() != f.cand.has_value();
    return std::tuple(!f.configuration, one_sided, f.step, f.kind);
  });
  return groups;
}

std::string fact_text(const FactDifference& fact) {
  const auto side = [](const std::optional<std::string>& value) {
    return value ? *value : std::string("(none)");
  };
  const std::string from = " from step " + std::to_string(fact.step);
  const std::string values = ": " + side(fact.base) + " | " + side(fact.cand);
  switch (fact.kind) {
    case FactKind::kModule: {
      const std::string many =
          fact.modules > 1 ? " (" + tools::counted(fact.modules, "module") + ")" : "";
      const std::string where = fact.module_class.starts_with(kOfLoss) ? ""
                                : fact.scope.empty()                   ? " in the root module"
                                                                       : " in " + fact.scope;
      return fact.module_class + ' ' + fact.name + values + where + many +
             (fact.step == 0 || fact.step == format::kNoStep ? "" : from + " on");
    }
    case FactKind::kOptimizer: {
      const std::string many =
          fact.modules > 1 ? " (" + tools::counted(fact.modules, "group") + ")" : "";
      const std::string which =
          fact.module_class.empty() ? "" : " in " + fact.scope + " (" + fact.module_class + ')';
      const std::string of = fact.parameters.empty() ? "" : ", of " + fact.parameters.front();
      const size_t more = of.empty() ? 0 : fact.parameters.size() - 1;
      return "optimizer " + fact.name + values + from + which + many + of +
             (more == 0 ? "" : " and " + std::to_string(more) + " more");
    }
    case FactKind::kGenerator:
      return "random numbers of " + fact.name + " differ" + from + " on" +
             (fact.from_the_start
                  ? ", the first that is known: seeded otherwise, or one run drew some before"
                  : ": one run drew others");
    case FactKind::kCode: break;
  }
  if (!fact.base || !fact.cand)
    return fact.name + " was imported in the " + (fact.base ? "baseline" : "candidate") + " alone";
  const size_t colon = fact.name.find(": ");
  return colon == fact.name.npos
             ? fact.name + " changed"
             : fact.name.substr(0, colon) + " changed" + fact.name.substr(colon);
}

std::string code_text(const CodePlace& place) {
  std::string text = place.module_class + (place.changed ? ", whose code changed" : "");
  if (!place.forward.empty()) text += (text.empty() ? "" : ", ") + place.forward;
  if (!place.call.empty()) text += (text.empty() ? "" : ", ") + ("called at " + place.call);
  if (!place.hooks.empty()) text += (text.empty() ? "" : ", ") + ("with " + place.hooks);
  if (!place.backward.empty())
    text += (text.empty() ? "" : ", ") + ("the loss is passed back at " + place.backward);
  return text;
}

std::string generated_text(const GeneratedCall& call) {
  std::string text = call.kernel;
  std::string_view before = " made of ";
  for (const std::string& node : call.nodes) {
    text += std::string(before) + node;
    before = ", ";
  }
  return call.line.empty() ? text : text + " at " + call.line;
}

}  // namespace convtrace::diff
