#include "format/settings/rule_book.h"

#include <algorithm>
#include <mutex>

namespace convtrace::settings {

void RuleBook::replace(std::vector<Rule> rules) {
  const std::unique_lock lock(mutex_);
  first_ = entries_.size();
  for (Rule& rule : rules) {
    rule.number = static_cast<uint32_t>(entries_.size());
    entries_.emplace_back(std::move(rule));
  }
  scopes_.clear();
  kernels_.clear();
  empty_.store(first_ == entries_.size(), std::memory_order_relaxed);
}

RuleBook::Matching RuleBook::rules() const {
  const std::shared_lock lock(mutex_);
  Matching all;
  for (size_t i = first_; i < entries_.size(); ++i) all.push_back(&entries_[i].rule);
  return all;
}

const RuleBook::Matching* RuleBook::known_kernel(const std::string& name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : found->second;
}

const RuleBook::Matching& RuleBook::of_kernel(std::span<const std::string> names) {
  {
    const std::shared_lock lock(mutex_);
    if (const Matching* const known = known_kernel(names.front())) return *known;
  }
  const std::unique_lock lock(mutex_);
  if (const Matching* const known = known_kernel(names.front())) return *known;
  Matching& found = lists_.emplace_back();
  for (size_t i = first_; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (!entry.rule.kernel) continue;
    const auto matches = [&entry](const std::string& name) {
      return entry.rule.kernel->matches(name);
    };
    if (std::ranges::none_of(names, matches)) continue;
    ++entry.kernels;
    found.push_back(&entry.rule);
  }
  kernels_.emplace(names.front(), &found);
  seen_kernels_.add(names.front());
  return found;
}

const RuleBook::Matching* RuleBook::known_scope(uint32_t id) const {
  const auto found = scopes_.find(id);
  return found == scopes_.end() ? nullptr : found->second;
}

const RuleBook::Matching& RuleBook::of_scope(uint32_t id, std::string_view name) {
  {
    const std::shared_lock lock(mutex_);
    if (const Matching* const known = known_scope(id)) return *known;
  }
  const std::unique_lock lock(mutex_);
  if (const Matching* const known = known_scope(id)) return *known;
  Matching& found = lists_.emplace_back();
  for (size_t i = first_; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (!entry.rule.scope || !entry.rule.scope->matches(name)) continue;
    ++entry.scopes;
    found.push_back(&entry.rule);
  }
  scopes_.emplace(id, &found);
  seen_scopes_.add(name);
  return found;
}

bool RuleBook::in_scope(const Rule& rule, uint32_t id, std::string_view name) {
  if (!rule.scope) return true;
  const Matching& matching = of_scope(id, name);
  return std::ranges::find(matching, &rule) != matching.end();
}

void RuleBook::used(const Rule& rule) noexcept {
  const std::shared_lock lock(mutex_);
  entries_[rule.number].used.fetch_add(1, std::memory_order_relaxed);
}

MatchLine RuleBook::report(const Entry& entry) const {
  const Rule& rule = entry.rule;
  if (rule.kernel && entry.kernels == 0)
    return unmatched(rule.where + ": kernel", rule.kernel->text(), "kernel", seen_kernels_);
  if (rule.scope && entry.scopes == 0)
    return unmatched(rule.where + ": scope", rule.scope->text(), "scope", seen_scopes_);
  std::string text = rule.where + ": matched ";
  if (rule.kernel) text += std::to_string(entry.kernels) + " kernels";
  if (rule.kernel && rule.scope) text += " and ";
  if (rule.scope) text += std::to_string(entry.scopes) + " scopes";
  return {.matched = true, .text = text + ", used " + std::to_string(entry.used.load()) + " times"};
}

std::vector<MatchLine> RuleBook::report() const {
  const std::shared_lock lock(mutex_);
  std::vector<MatchLine> lines;
  for (size_t i = first_; i < entries_.size(); ++i) lines.push_back(report(entries_[i]));
  return lines;
}

}  // namespace convtrace::settings
