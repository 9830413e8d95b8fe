#pragma once
/// @file rule_book.h
/// The rules of a process in use: which rules apply to a kernel or a scope, and what each has
/// matched.
///
/// A name is matched against all patterns once, when it is first seen. A launch only costs a
/// look-up.
///
/// Place:    one for each process; the launch gate asks about kernels, the observer's port about
///           scopes.
/// Threads:  any, concurrently.
/// Errors:   none. Rules and lists that were returned stay valid as long as the book.

#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/base/mutex.h"
#include "format/settings/match_report.h"
#include "format/settings/rules.h"

namespace convtrace::settings {

class RuleBook {
 public:
  using Matching = std::vector<const Rule*>;

  explicit RuleBook(std::vector<Rule> rules = {}) { replace(std::move(rules)); }

  /// Replaces the rules. Matches are forgotten, counts are kept.
  void replace(std::vector<Rule> rules);

  /// @return the rules that apply now, in the order of their file.
  [[nodiscard]] Matching rules() const;
  [[nodiscard]] bool empty() const noexcept { return empty_.load(std::memory_order_relaxed); }

  /// @param names  of one kernel, any of which a pattern may match. The first identifies the
  /// kernel.
  /// @return the rules whose kernel pattern matches.
  [[nodiscard]] const Matching& of_kernel(std::span<const std::string> names);

  /// @param id, @param name  of one scope.
  /// @return the rules whose scope pattern matches, whatever their kernel pattern.
  [[nodiscard]] const Matching& of_scope(uint32_t id, std::string_view name);

  /// @return whether `rule` has no scope pattern, or one that matches.
  [[nodiscard]] bool in_scope(const Rule& rule, uint32_t id, std::string_view name);

  /// Counts that `rule`, which belongs to this book, had a value taken or a finding suppressed.
  void used(const Rule& rule) noexcept;

  /// @return a line for each present rule, with what it matched or the nearest names.
  [[nodiscard]] std::vector<Notice> report() const;

 private:
  struct Entry {
    explicit Entry(Rule rule_in) : rule(std::move(rule_in)) {}
    Rule rule;
    uint64_t kernels = 0;
    uint64_t scopes = 0;
    std::atomic<uint64_t> used{0};
  };

  template <typename Key>
  using Known = std::unordered_map<Key, const Matching*>;

  template <typename Key, typename Meets>
  const Matching& matching(Known<Key> RuleBook::*known, const Key& key, const Meets& meets,
                           std::string_view name, SeenNames RuleBook::*seen);
  [[nodiscard]] Notice report(const Entry& entry) const CONVTRACE_REQUIRES_SHARED(mutex_);

  mutable SharedMutex mutex_;
  std::deque<Entry> entries_ CONVTRACE_GUARDED_BY(mutex_);  ///< all rules since the start
  size_t first_ CONVTRACE_GUARDED_BY(mutex_) = 0;           ///< index of the first present rule
  std::deque<Matching> lists_ CONVTRACE_GUARDED_BY(mutex_);
  Known<uint32_t> scopes_ CONVTRACE_GUARDED_BY(mutex_);
  Known<std::string> kernels_ CONVTRACE_GUARDED_BY(mutex_);
  std::atomic<bool> empty_{true};
  SeenNames seen_kernels_ CONVTRACE_GUARDED_BY(mutex_), seen_scopes_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::settings
