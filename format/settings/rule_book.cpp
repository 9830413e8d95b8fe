#include "format/settings/rule_book.h"

#include <algorithm>
#include <optional>

#include "format/base/count_noun.h"

namespace convtrace::settings {

void RuleBook::replace(std::vector<Rule> rules) {
  const Lock lock(mutex_);
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
  const SharedLock lock(mutex_);
  Matching all;
  for (size_t i = first_; i < entries_.size(); ++i) all.push_back(&entries_[i].rule);
  return all;
}

/// @param meets  decides for each entry whether it matches, and counts matches.
template <typename Key, typename Meets>
const RuleBook::Matching& RuleBook::matching(Known<Key> RuleBook::*known_table, const Key& key,
                                             const Meets& meets, std::string_view name,
                                             SeenNames RuleBook::*seen) {
  {
    const SharedLock lock(mutex_);
    const Known<Key>& known = this->*known_table;
    if (const auto found = known.find(key); found != known.end()) return *found->second;
  }
  const Lock lock(mutex_);
  Known<Key>& known = this->*known_table;
  if (const auto found = known.find(key); found != known.end()) return *found->second;
  Matching& made = lists_.emplace_back();
  for (size_t i = first_; i < entries_.size(); ++i) {
    if (meets(entries_[i])) made.push_back(&entries_[i].rule);
  }
  known.emplace(key, &made);
  (this->*seen).add(name);
  return made;
}

const RuleBook::Matching& RuleBook::of_kernel(std::span<const std::string> names) {
  const auto meets = [names](Entry& entry) {
    const std::optional<Pattern>& pattern = entry.rule.kernel;
    const bool met = pattern && std::ranges::any_of(names, [&pattern](const std::string& name) {
                       return pattern->matches(name);
                     });
    entry.kernels += met ? 1 : 0;
    return met;
  };
  return matching(&RuleBook::kernels_, names.front(), meets, names.front(),
                  &RuleBook::seen_kernels_);
}

const RuleBook::Matching& RuleBook::of_scope(uint32_t id, std::string_view name) {
  const auto meets = [name](Entry& entry) {
    const bool met = entry.rule.scope && entry.rule.scope->matches(name);
    entry.scopes += met ? 1 : 0;
    return met;
  };
  return matching(&RuleBook::scopes_, id, meets, name, &RuleBook::seen_scopes_);
}

bool RuleBook::in_scope(const Rule& rule, uint32_t id, std::string_view name) {
  if (!rule.scope) return true;
  const Matching& matching = of_scope(id, name);
  return std::ranges::find(matching, &rule) != matching.end();
}

void RuleBook::used(const Rule& rule) noexcept {
  const SharedLock lock(mutex_);
  entries_[rule.number].used.fetch_add(1, std::memory_order_relaxed);
}

Notice RuleBook::report(const Entry& entry) const {
  const Rule& rule = entry.rule;
  if (rule.kernel && entry.kernels == 0)
    return unmatched(rule.where + ": kernel", rule.kernel->text(), "no kernel was launched",
                     seen_kernels_);
  if (rule.scope && entry.scopes == 0)
    return unmatched(rule.where + ": scope", rule.scope->text(),
                     "no module ran in a step whose values were wanted", seen_scopes_);
  std::string text = rule.where + ": matched ";
  if (rule.kernel) text += count_noun(entry.kernels, "kernel");
  if (rule.kernel && rule.scope) text += " and ";
  if (rule.scope) text += count_noun(entry.scopes, "module");
  const uint64_t used = entry.used.load();
  // A rule that declares or suppresses may have nothing to do.
  if (used == 0 && takes_values(rule))
    return {messages::kRuleUnused,
            text +
                " and took no value: its steps did not come, a rule before it took "
                "them, or the mode takes none"};
  return {messages::kMatched, text + ", used " + count_noun(used, "time")};
}

std::vector<Notice> RuleBook::report() const {
  const SharedLock lock(mutex_);
  std::vector<Notice> lines;
  for (size_t i = first_; i < entries_.size(); ++i) {
    // No report for typed kernels: the user has named none.
    if (entries_[i].rule.all_kernels != Rule::AllKernels::kTyped)
      lines.push_back(report(entries_[i]));
  }
  return lines;
}

}  // namespace convtrace::settings
