#include "format/settings/rules.h"

#include <algorithm>
#include <iterator>

#include "format/settings/nearest.h"
#include "format/settings/setting_values.h"
#include "format/settings/toml_file.h"

namespace convtrace::settings {
namespace {

using format::Capture;

constexpr std::string_view kCaptures[] = {"hash", "stats", "snapshot"};
constexpr uint32_t kMaxParameter = 4096;  // a CUDA kernel has 32764 bytes of parameters

/// Parsers of one key's value; each returns "" or the problem.

std::string take_text(const toml::node& node, std::string& value) {
  const auto* text = node.as_string();
  if (text == nullptr) return "takes a text";
  value = text->get();
  return {};
}

std::string take_pattern(const toml::node& node, std::optional<Pattern>& value) {
  std::string text;
  if (std::string why = take_text(node, text); !why.empty()) return why;
  Result<Pattern> pattern = Pattern::compile(text);
  if (!pattern.ok()) return "has the bad pattern " + settings::quoted(text);
  value = std::move(pattern).value();
  return {};
}

std::string take_flag(const toml::node& node, bool& value) {
  const auto* flag = node.as_boolean();
  if (flag == nullptr) return "takes true or false";
  value = flag->get();
  return {};
}

std::string take_number(const toml::node& node, uint32_t maximum, uint32_t& value) {
  const auto* number = node.as_integer();
  if (number == nullptr || number->get() < 0 || number->get() > maximum)
    return "takes numbers from 0 to " + std::to_string(maximum);
  value = static_cast<uint32_t>(number->get());
  return {};
}

std::string take_positions(const toml::node& node, std::vector<uint32_t>& value) {
  const auto* list = node.as_array();
  if (list == nullptr) return "takes a list of parameter positions";
  value.clear();
  for (const toml::node& item : *list) {
    uint32_t position = 0;
    if (std::string why = take_number(item, kMaxParameter, position); !why.empty()) return why;
    value.push_back(position);
  }
  return {};
}

/// A step or rank set; a single one may be a bare number.
std::string take_set(const toml::node& node, std::string (*parse)(std::string_view, StepSet&),
                     StepSet& value) {
  std::string text;
  if (const auto* number = node.as_integer()) {
    text = std::to_string(number->get());
  } else if (std::string why = take_text(node, text); !why.empty()) {
    return why;
  }
  const std::string why = parse(text, value);
  return why.empty() ? why : settings::quoted(text) + ": " + why;
}

std::string take_capture(const toml::node& node, std::optional<Capture>& value) {
  std::string text;
  if (std::string why = take_text(node, text); !why.empty()) return why;
  size_t index = 0;
  if (std::string why = parse_choice(text, kCaptures, index); !why.empty())
    return "takes hash, stats or snapshot: " + why;
  value = static_cast<Capture>(index);
  return {};
}

std::string take_outputs(const toml::node& node, Rule& rule) {
  const auto* text = node.as_string();
  if (text == nullptr) return take_positions(node, rule.outputs);
  if (text->get() != "auto") return R"(takes "auto" or a list of parameter positions)";
  rule.outputs_auto = true;
  return {};
}

std::string take_dtype(const toml::node& node, std::optional<format::DType>& value) {
  std::string text;
  if (std::string why = take_text(node, text); !why.empty()) return why;
  value = format::dtype_from_string(text);
  if (value && *value != format::DType::kUnknown) return {};
  return "has the unknown element type " + settings::quoted(text);
}

struct RuleKey {
  RuleKeySpec spec;
  std::string (*take)(const toml::node& node, Rule& rule);
};

constexpr RuleKey kKeys[] = {
    {{"kernel", "PATTERN", "Kernels by their demangled name, mangled name or family."},
     [](const toml::node& n, Rule& r) { return take_pattern(n, r.kernel); }},
    {{"scope", "PATTERN", "Modules by their path, as named_modules() gives it."},
     [](const toml::node& n, Rule& r) { return take_pattern(n, r.scope); }},
    {{"steps", "0|5-8|100-120,every=50|all", "Steps in which the rule applies."},
     [](const toml::node& n, Rule& r) { return take_set(n, parse_steps, r.steps); }},
    {{"ranks", "0-3,7|all", "Ranks on which the rule applies."},
     [](const toml::node& n, Rule& r) { return take_set(n, parse_ranks, r.ranks); }},
    {{"capture", "hash|stats|snapshot",
      "How much is taken: of every value of the modules, or of a kernel's operands; of all that "
      "the "
      "kernel writes where neither outputs nor inputs are named."},
     [](const toml::node& n, Rule& r) { return take_capture(n, r.capture); }},
    {{"outputs", "\"auto\"|[0, 5]", "Parameters of a kernel whose values are taken behind it."},
     [](const toml::node& n, Rule& r) { return take_outputs(n, r); }},
    {{"inputs", "[1, 2]", "Parameters of a kernel that it reads."},
     [](const toml::node& n, Rule& r) { return take_positions(n, r.inputs); }},
    {{"dtype", "f32|bf16|...", "Type of the elements of a kernel's operands."},
     [](const toml::node& n, Rule& r) { return take_dtype(n, r.dtype); }},
    {{"inplace", "true|false", "Writing its inputs is declared, so it is no finding."},
     [](const toml::node& n, Rule& r) { return take_flag(n, r.inplace); }},
    {{"samples", "0..4096", "Raw values kept of each."},
     [](const toml::node& n, Rule& r) { return take_number(n, kMaxSamples, r.samples.emplace()); }},
    {{"suppress", "true|false", "Findings are recorded as suppressed."},
     [](const toml::node& n, Rule& r) { return take_flag(n, r.suppress); }},
};

std::string take(const toml::key& key, const toml::node& node, Rule& rule) {
  const auto found = std::find_if(std::begin(kKeys), std::end(kKeys),
                                  [&](const RuleKey& k) { return k.spec.name == key.str(); });
  if (found == std::end(kKeys)) {
    std::string_view names[std::size(kKeys)];
    std::transform(std::begin(kKeys), std::end(kKeys), names,
                   [](const RuleKey& k) { return k.spec.name; });
    return "unknown key " + settings::quoted(key.str()) + " in a rule; " +
           suggestion(key.str(), names, "`convtrace run --help` lists them");
  }
  const std::string why = found->take(node, rule);
  return why.empty() ? why : std::string(key.str()) + " " + why;
}

/// A rule must name a subject, and must have no key that is meaningless for it.
void check_subject(const std::string& path, const toml::table& table,
                   std::vector<std::string>& problems) {
  if (table.contains("kernel")) return;
  if (!table.contains("scope")) {
    problems.push_back(at(path, table.source(), "a rule needs a kernel or a scope pattern"));
    return;
  }
  for (const char* key : {"outputs", "inputs", "dtype"}) {
    if (const toml::node* const node = table.get(key)) {
      problems.push_back(at(path, node->source(),
                            std::string(key) + " is about a kernel's parameters; the rule has no "
                                               "kernel pattern"));
    }
  }
}

void load_rule(const std::string& path, const toml::node& node, LoadedRules& loaded) {
  const auto* table = node.as_table();
  if (table == nullptr) {
    loaded.problems.push_back(at(path, node.source(), "a rule is a table: [[rule]]"));
    return;
  }
  Rule rule;
  rule.where = at(path, node.source());
  const size_t before = loaded.problems.size();
  for (const auto& [key, value] : *table) {
    const std::string why = take(key, value, rule);
    if (!why.empty()) loaded.problems.push_back(at(path, key.source(), why));
  }
  // If a key is invalid, the rule may lack it.
  if (loaded.problems.size() == before) check_subject(path, *table, loaded.problems);
  loaded.rules.push_back(std::move(rule));
}

}  // namespace

Rule rule_for_all_kernels(Rule::AllKernels which, format::Capture capture) {
  Rule rule;
  rule.where =
      which == Rule::AllKernels::kEach ? "CONVTRACE_ALL_KERNELS" : "CONVTRACE_COMPILED=all";
  rule.kernel = Pattern::compile("*").value();
  rule.capture = capture;
  rule.outputs_auto = true;
  rule.all_kernels = which;
  return rule;
}

std::string print(const Rule& rule) {
  std::string line;
  const auto add = [&line](std::string_view key, const std::string& value) {
    line += (line.empty() ? "" : ", ") + std::string(key) + ' ' + value;
  };
  const auto positions = [](const std::vector<uint32_t>& list) {
    std::string text;
    for (const uint32_t position : list)
      text += (text.empty() ? "" : " ") + std::to_string(position);
    return text;
  };
  const std::string steps = rule.steps.steps_text(), ranks = rule.ranks.ranks_text();
  if (rule.kernel) add("kernel", rule.kernel->text());
  if (rule.scope) add("scope", rule.scope->text());
  if (steps != "all") add("steps", steps);
  if (ranks != "all") add("ranks", ranks);
  if (rule.capture) add("capture", std::string(to_string(*rule.capture)));
  if (rule.outputs_auto) add("outputs", "auto");
  if (!rule.outputs.empty()) add("outputs", positions(rule.outputs));
  if (!rule.inputs.empty()) add("inputs", positions(rule.inputs));
  if (rule.dtype) add("dtype", std::string(to_string(*rule.dtype)));
  if (rule.inplace) add("inplace", "true");
  if (rule.samples) add("samples", std::to_string(*rule.samples));
  if (rule.suppress) add("suppress", "true");
  return line;
}

std::vector<RuleKeySpec> rule_keys() {
  std::vector<RuleKeySpec> specs;
  for (const RuleKey& key : kKeys) specs.push_back(key.spec);
  return specs;
}

LoadedRules load_rules(const std::string& path) {
  LoadedRules loaded;
  const auto root = read_toml(path, loaded.problems);
  if (!root) return loaded;
  if (const toml::node* rules = root->get("rule")) {
    if (const auto* list = rules->as_array()) {
      for (const toml::node& rule : *list) load_rule(path, rule, loaded);
    } else {
      loaded.problems.push_back(at(path, rules->source(), "rules are written as [[rule]]"));
    }
  }
  if (!loaded.problems.empty()) loaded.rules.clear();
  return loaded;
}

}  // namespace convtrace::settings
