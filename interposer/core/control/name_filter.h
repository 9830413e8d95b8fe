#pragma once
/// @file name_filter.h
/// CONVTRACE_INCLUDE and CONVTRACE_EXCLUDE: selects the modules whose values, and the kernels whose
/// launches, are recorded.
///
/// A name is wanted if a pattern of INCLUDE matches it (or there is none) and no pattern of EXCLUDE
/// does. A scope has one name, a kernel has three (demangled, mangled, family). Each is matched
/// once.
///
/// Threads:  any, concurrently. Costs one branch when there is no pattern.

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/base/messages.h"
#include "format/base/mutex.h"
#include "format/model/definitions.h"
#include "format/settings/match_report.h"
#include "format/settings/pattern.h"

namespace convtrace::engine {

class NameFilter {
 public:
  /// @param definitions  contains the ids that are asked about; outlives this.
  NameFilter(std::vector<settings::Pattern> include, std::vector<settings::Pattern> exclude,
             const format::Definitions& definitions);

  /// Replaces the patterns and resets their counts, so call report() before.
  void replace(std::vector<settings::Pattern> include, std::vector<settings::Pattern> exclude);

  /// @return whether there is any pattern.
  [[nodiscard]] bool active() const noexcept { return active_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool wants(format::StringId scope);
  [[nodiscard]] bool wants(format::KernelId kernel);

  /// @return one line for each pattern with what it matched or the nearest names, and one line if
  /// all patterns together exclude every name.
  [[nodiscard]] std::vector<Notice> report() const;

 private:
  enum class Answer : uint8_t { kUnknown, kYes, kNo };
  using Answers = std::vector<Answer>;  ///< by id

  struct Entry {
    settings::Pattern pattern;
    const char* setting;
    uint64_t matched = 0;  ///< number of names
  };

  template <typename NamesOf>
  bool answer(Answers NameFilter::*answers, uint32_t id, NamesOf names_of);
  [[nodiscard]] bool judge(std::span<const std::string> names) CONVTRACE_REQUIRES(mutex_);
  static bool matches_any(std::vector<Entry>& entries, std::span<const std::string> names);
  void report(const std::vector<Entry>& entries, std::vector<Notice>& lines) const
      CONVTRACE_REQUIRES_SHARED(mutex_);

  const format::Definitions& definitions_;
  std::atomic<bool> active_{false};
  mutable SharedMutex mutex_;
  std::vector<Entry> include_ CONVTRACE_GUARDED_BY(mutex_), exclude_ CONVTRACE_GUARDED_BY(mutex_);
  Answers scopes_ CONVTRACE_GUARDED_BY(mutex_), kernels_ CONVTRACE_GUARDED_BY(mutex_);
  uint64_t asked_ CONVTRACE_GUARDED_BY(mutex_) = 0;   ///< number of names that were asked about
  uint64_t wanted_ CONVTRACE_GUARDED_BY(mutex_) = 0;  ///< number of those that are wanted
  settings::SeenNames seen_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::engine
