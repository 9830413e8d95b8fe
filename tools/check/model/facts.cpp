#include "tools/check/model/facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace convtrace::check {
namespace {

constexpr std::string_view kDropped = "compiled_dropped.";
constexpr std::string_view kOptimizer = "optimizer.";

/// Reads the number before the next dot and passes over both.
std::optional<unsigned> take_number(std::string_view& text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || length == text.size() || text[length] != '.') return std::nullopt;
  text.remove_prefix(length + 1);
  return number;
}

bool contains_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = list.find(", ");
    if (list.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 2);
  }
  return false;
}

}  // namespace

std::optional<std::string_view> cut(std::string_view& text, std::string_view until) {
  const size_t at = text.find(until);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at + until.size());
  return part;
}

void Facts::take(const StepValues& step) {
  for (const FactSeen& fact : step.facts) {
    const std::string name(names_.text(fact.name));
    if (fact.scope) {
      modules_[{std::string(names_.text(fact.scope)), name}] = fact.value;
    } else if (name.starts_with(kOptimizer)) {
      take_setting(std::string_view(name).substr(kOptimizer.size()), fact.value);
    } else {
      program_[name] = fact.value;
    }
  }
}

std::string_view Facts::of_module(format::StringId scope, std::string_view name) const {
  const auto found = modules_.find({std::string(names_.text(scope)), std::string(name)});
  return found == modules_.end() ? std::string_view() : found->second;
}

std::string_view Facts::class_of(format::StringId scope) const {
  const std::string_view whole = of_module(scope, "class");
  return whole.substr(whole.rfind('.') + 1);  // npos + 1 is 0
}

bool Facts::contains_others(format::StringId scope) const {
  const std::string path(names_.text(scope));
  const std::string below = path.empty() ? "" : path + '.';
  auto next = modules_.lower_bound({below, ""});
  while (next != modules_.end() && next->first.first == path) ++next;
  return next != modules_.end() && next->first.first.starts_with(below);
}

bool Facts::is_parametrized(format::StringId scope) const {
  return of_module(scope, "class").starts_with("torch.nn.utils.") ||
         names_.text(scope).find("parametrizations") != std::string_view::npos;
}

bool Facts::is_torchs(format::StringId scope) const {
  return of_module(scope, "class").starts_with("torch.nn.modules.");
}

bool Facts::frozen(const Parameter& parameter) const {
  return contains_word(of_module(parameter.scope, "frozen"), names_.text(parameter.name));
}

std::string_view Facts::attribute(format::StringId scope, std::string_view key) const {
  std::string_view all = of_module(scope, "attributes");
  for (size_t at = all.find(key); at != std::string_view::npos; at = all.find(key, at + 1)) {
    const bool begins = at == 0 || (at >= 2 && all.substr(at - 2, 2) == ", ");
    const size_t equals = at + key.size();
    if (!begins || equals >= all.size() || all[equals] != '=') continue;
    const std::string_view value = all.substr(equals + 1);
    return value.substr(0, value.find(", "));
  }
  return {};
}

double Facts::drop_rate(format::StringId scope) const {
  const std::string_view name = class_of(scope);
  const bool is_drop = name.find("Drop") != std::string_view::npos ||
                       name.find("StochasticDepth") != std::string_view::npos;
  if (!is_drop) return is_torchs(scope) ? number(attribute(scope, "dropout")).value_or(0) : 0;
  for (const std::string_view key : {"p", "drop_prob", "drop_rate"})
    if (const auto rate = number(attribute(scope, key))) return *rate;
  return 0;
}

bool Facts::drops(format::StringId scope) const {
  return class_of(scope).find("Dropout") != std::string_view::npos;
}

bool Facts::depends_on_mode(format::StringId scope) const {
  if (drops(scope)) return !contains_word(of_module(scope, "attributes"), "p=0.0");
  return class_of(scope).find("BatchNorm") != std::string_view::npos;
}

std::optional<bool> Facts::takes_tensors_alone(format::StringId scope, format::StringId op) const {
  const std::string name = "op." + std::string(names_.text(op));
  const auto of_program = program_.find(name);
  const std::string_view known = scope                          ? of_module(scope, name)
                                 : of_program != program_.end() ? of_program->second
                                                                : std::string_view();
  return known.empty() ? std::nullopt : std::optional(known == "tensors alone");
}

void Facts::take(const std::vector<std::pair<std::string, std::string>>& of_program) {
  for (const auto& [name, value] : of_program)
    if (name.starts_with("compiled") || name.starts_with("setting.")) program_[name] = value;
}

std::vector<std::pair<std::string_view, std::string_view>> Facts::dropped_views() const {
  std::vector<std::pair<std::string_view, std::string_view>> views;
  for (auto fact = program_.lower_bound(std::string(kDropped));
       fact != program_.end() && fact->first.starts_with(kDropped); ++fact)
    views.emplace_back(std::string_view(fact->first).substr(kDropped.size()), fact->second);
  return views;
}

std::string_view Facts::of_program(const std::string& name) const {
  const auto found = program_.find(name);
  return found == program_.end() ? std::string_view() : std::string_view(found->second);
}

const Facts::Settings& Facts::settings(std::string_view key) const { return values(key).by_group; }

const Facts::Values& Facts::values(std::string_view key) const {
  static const Values kNone;
  const auto found = settings_.find(key);
  return found == settings_.end() ? kNone : found->second;
}

std::optional<Facts::Group> Facts::group_of(std::string_view fact, std::string_view key) {
  if (!fact.starts_with(kOptimizer) || !fact.ends_with(key)) return std::nullopt;
  fact.remove_prefix(kOptimizer.size());
  const std::optional<unsigned> optimizer = take_number(fact);
  if (!optimizer) return std::nullopt;
  const std::optional<unsigned> group = take_number(fact);
  return fact == key ? std::optional(Group{*optimizer, group.value_or(0)}) : std::nullopt;
}

/// @param name  of a fact, after "optimizer."
void Facts::take_setting(std::string_view name, const std::string& value) {
  const std::optional<unsigned> optimizer = take_number(name);
  if (!optimizer) return;
  const std::optional<unsigned> group = take_number(name);
  Values& values = settings_[std::string(name)];
  const auto [entry, is_new] = values.by_group.try_emplace({*optimizer, group.value_or(0)});
  std::string& known = entry->second;
  if (!is_new) {
    const auto before = values.counts.find(known);
    if (--before->second == 0) values.counts.erase(before);
    if (const auto rate = number(known)) values.numbers.erase(values.numbers.find(*rate));
  }
  known = value;
  ++values.counts[known];
  if (const auto now = number(known)) values.numbers.insert(*now);
}

std::optional<double> Facts::number(std::string_view value) {
  double result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  const bool whole = error == std::errc() && end == value.data() + value.size();
  return whole && !std::isnan(result) ? std::optional(result) : std::nullopt;
}

bool Facts::knows_generators() const {
  const auto first = program_.lower_bound("rng.");
  return first != program_.end() && first->first.starts_with("rng.");
}

std::optional<double> Facts::largest_rate() const {
  const std::multiset<double>& rates = values("lr").numbers;
  return rates.empty() ? std::nullopt : std::optional(std::max(0.0, *rates.rbegin()));
}

bool Facts::all_descend() const {
  const auto& classes = values("class").counts;
  return !classes.empty() && std::ranges::all_of(classes, [](const auto& one) {
    const std::string_view name = one.first;
    return name.substr(name.rfind('.') + 1) == "SGD";
  });
}

bool Facts::some_rate_is_zero() const { return values("lr").numbers.contains(0.0); }

bool Facts::plain_descent() const {
  if (!all_descend()) return false;
  for (const std::string_view key : {"momentum", "weight_decay"}) {
    const auto& [by_group, counts, numbers] = values(key);
    if (numbers.size() != by_group.size()) return false;
    if (!numbers.empty() && (*numbers.begin() != 0 || *numbers.rbegin() != 0)) return false;
  }
  return true;
}

}  // namespace convtrace::check
