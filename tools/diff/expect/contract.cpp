#include "tools/diff/expect/contract.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "format/settings/nearest.h"
#include "format/settings/toml_file.h"
#include "tools/common/escape.h"

namespace convtrace::diff {
namespace {

constexpr double kMostPercent = 1e6;

/// What a key of a clause is read by.
struct Key {
  std::string_view name;
  std::string_view takes;
  bool (*read)(const toml::node& value, Clause& clause);
  std::string_view tables;  ///< those that have it
};

std::optional<settings::Pattern> pattern_of(const toml::node& value) {
  const auto text = value.value<std::string_view>();
  auto compiled = text ? settings::Pattern::compile(*text) : settings::Pattern::compile("");
  if (!compiled.ok()) return std::nullopt;
  return std::move(compiled).value();
}

bool read_scope(const toml::node& value, Clause& clause) {
  clause.where.root_alone = value.value<std::string_view>() == std::optional(std::string_view());
  if (!clause.where.root_alone) clause.where.scope = pattern_of(value);
  return clause.where.root_alone || clause.where.scope;
}

bool read_phase(const toml::node& value, Clause& clause) {
  const toml::array* const list = value.as_array();
  const auto add = [&clause](const toml::node& one) {
    const auto text = one.value<std::string_view>();
    for (size_t i = 0; text && i < kPhasesOfClause; ++i) {
      if (to_string(static_cast<format::Phase>(i)) != *text) continue;
      clause.where.phases.set(i);
      return true;
    }
    return false;
  };
  if (list == nullptr) return add(value);
  return !list->empty() && std::ranges::all_of(*list, add);
}

bool read_steps(const toml::node& value, Clause& clause) {
  const auto text = value.value<std::string_view>();
  auto steps = settings::StepSet::parse_steps(text.value_or(""));
  if (!steps.ok()) return false;
  clause.where.steps = std::move(steps).value();
  return true;
}

bool read_to(const toml::node& value, Clause& clause) {
  const auto text = value.value<std::string_view>().value_or("");
  clause.to_the_bit = text == "bit";
  return clause.to_the_bit || text == "rounding";
}

bool read_findings(const toml::node& value, Clause& clause) {
  const auto text = value.value<std::string_view>().value_or("");
  for (const auto level : {format::Level::kError, format::Level::kWarning, format::Level::kInfo})
    if (text == to_string(level)) clause.findings = level;
  return clause.findings.has_value();
}

bool read_slower(const toml::node& value, Clause& clause) {
  const auto text = value.value<std::string_view>().value_or("");
  double percent = -1;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), percent);
  if (failed != std::errc() || end + 1 != text.data() + text.size() || *end != '%' ||
      !(percent >= 0 && percent <= kMostPercent))
    return false;
  clause.slower = percent / 100;
  return true;
}

bool read_each_step(const toml::node& value, Clause& clause) {
  clause.each_step = value.value<bool>().value_or(false);
  return value.is_boolean();
}

constexpr std::array<Key, 10> kKeys = {{
    {"scope", "a module's path: a glob, or re: and an expression", read_scope,
     "unchanged changed runs never"},
    {"slot", "a pattern",
     [](const toml::node& value, Clause& clause) {
       return (clause.where.slot = pattern_of(value)).has_value();
     },
     "unchanged changed runs never"},
    {"op", "a pattern",
     [](const toml::node& value, Clause& clause) {
       return (clause.where.op = pattern_of(value)).has_value();
     },
     "unchanged changed runs never"},
    {"phase", "one or more of forward, data, loss, backward, optimizer, recompute, evaluation",
     read_phase, "unchanged changed runs never"},
    {"steps", "steps as CONVTRACE_STEPS has them", read_steps, "unchanged changed runs never"},
    {"to", "\"bit\" or \"rounding\"", read_to, "unchanged changed"},
    {"code", "a pattern",
     [](const toml::node& value, Clause& clause) {
       return (clause.code = pattern_of(value)).has_value();
     },
     "changed runs"},
    {"each_step", "true or false", read_each_step, "runs"},
    {"findings", "\"error\", \"warning\" or \"info\"", read_findings, "never"},
    {"slower", "a share such as \"5%\"", read_slower, "never"},
}};

std::string shown(const toml::node& value) {
  if (const auto text = value.value<std::string>()) return settings::quoted(*text);
  if (const auto flag = value.value<bool>()) return *flag ? "true" : "false";
  std::string list;
  if (const toml::array* const values = value.as_array())
    for (const toml::node& one : *values) list += (list.empty() ? "[" : ", ") + shown(one);
  return list + "]";
}

class Reader {
 public:
  Reader(std::string path, Contract& contract) : path_(std::move(path)), contract_(contract) {}

  /// @return a problem, with its line; "" for none.
  std::string read() {
    std::vector<std::string> problems;
    const auto root = settings::read_toml(path_, problems);
    if (!root) return problems.front();
    bool same_program = false;
    for (const auto& [key, value] : *root) {
      if (key.str() == "same_program") {
        same_program = value.value<bool>().value_or(false);
        if (!value.is_boolean()) return at(value, "same_program takes true or false");
        continue;
      }
      const std::string problem = table(key.str(), value);
      if (!problem.empty()) return problem;
    }
    if (contract_.clauses.empty()) return path_ + ": has no clause; docs/expect.md shows some";
    if (!same_program)
      contract_.clauses.push_back({.kind = ClauseKind::kUnlike, .text = "the runs"});
    std::ranges::stable_sort(contract_.clauses, {}, &Clause::kind);
    return "";
  }

 private:
  static constexpr std::array<std::string_view, 5> kNames = {"unchanged", "changed", "runs",
                                                             "never", "same_program"};

  [[nodiscard]] std::string at(const toml::node& node, std::string_view text) const {
    return settings::at(path_, node.source(), text);
  }

  std::string table(std::string_view name, const toml::node& value) {
    const auto kind = std::ranges::find(kNames.begin(), kNames.end() - 1, name);
    if (kind == kNames.end() - 1)
      return at(value, settings::quoted(name) + " is unknown; " +
                           settings::suggestion(name, kNames, "docs/expect.md has all tables"));
    const toml::array* const list = value.as_array();
    const auto is_table = [](const toml::node& one) { return one.is_table(); };
    if (list == nullptr || !std::ranges::all_of(*list, is_table))
      return at(value, "[[" + std::string(name) + "]] is a list of tables");
    for (const toml::node& one : *list) {
      const std::string problem =
          clause(static_cast<ClauseKind>(kind - kNames.begin()), *one.as_table());
      if (!problem.empty()) return problem;
    }
    return "";
  }

  std::string clause(ClauseKind kind, const toml::table& keys) {
    Clause made{.kind = kind, .line = keys.source().begin.line};
    bool has_values = false;
    for (const auto& [key, value] : keys) {
      const std::string_view name = key.str();
      const auto known = std::ranges::find(kKeys, name, &Key::name);
      if (known == kKeys.end() || known->tables.find(to_string(kind)) == std::string_view::npos)
        return at(value, "[[" + std::string(to_string(kind)) + "]] has no " +
                             settings::quoted(name) + "; " +
                             settings::suggestion(name, names_of(kind), "docs/expect.md"));
      if (!known->read(value, made))
        return at(value, std::string(name) + " takes " + std::string(known->takes));
      made.text += (made.text.empty() ? "" : ", ") + std::string(name) + " = " + shown(value);
      has_values |= name != "code" && name != "findings" && name != "slower" && name != "each_step";
    }
    if (made.each_step && made.code) return at(keys, "each_step is about values, and code is not");
    const int alone = (made.code ? 1 : 0) + (made.findings ? 1 : 0) + (made.slower ? 1 : 0);
    if (alone + (has_values ? 1 : 0) > 1)
      return at(keys, "code, findings and slower are clauses of their own");
    if (alone == 0 && !has_values && kind != ClauseKind::kUnchanged)
      return at(keys, "[[" + std::string(to_string(kind)) + "]] says nothing");
    if (made.text.empty()) made.text = "everything";
    contract_.clauses.push_back(std::move(made));
    return "";
  }

  static std::vector<std::string_view> names_of(ClauseKind kind) {
    std::vector<std::string_view> names;
    for (const Key& key : kKeys)
      if (key.tables.find(to_string(kind)) != std::string_view::npos) names.push_back(key.name);
    return names;
  }

  std::string path_;
  Contract& contract_;
};

}  // namespace

std::string_view to_string(ClauseKind kind) {
  constexpr std::string_view kNames[] = {
#define CONVTRACE_X(name, text) text,
      CONVTRACE_CLAUSES(CONVTRACE_X)
#undef CONVTRACE_X
  };
  return kNames[static_cast<size_t>(kind)];
}

bool Where::has_scope(std::string_view path) const {
  if (root_alone) return path.empty();
  if (!scope || scope->matches(path)) return true;
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1))
    if (scope->matches(path.substr(0, dot))) return true;
  return false;
}

bool read_contract(const std::string& path, Contract& contract, std::string& error) {
  contract.path = path;
  error = tools::escape_text(Reader(path, contract).read());
  return error.empty();
}

}  // namespace convtrace::diff
