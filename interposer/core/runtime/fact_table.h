#pragma once
/// @file fact_table.h
/// Facts for META that are found while the program runs.
///
/// Threads:  any; locks a mutex, on rare paths only.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "format/base/mutex.h"

namespace convtrace::engine {

class FactTable {
 public:
  /// Replaces an earlier value of that name.
  void set(std::string name, std::string value) {
    const Lock lock(mutex_);
    std::string& known = facts_[std::move(name)];
    if (known == value) return;
    known = std::move(value);
    changed_ = true;
  }

  /// @return whether a fact was set since the last call.
  [[nodiscard]] bool take_changed() {
    const Lock lock(mutex_);
    return std::exchange(changed_, false);
  }

  /// @return all facts, ascending by name.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> all() const {
    const Lock lock(mutex_);
    return {facts_.begin(), facts_.end()};
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::string> facts_ CONVTRACE_GUARDED_BY(mutex_);
  bool changed_ CONVTRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace convtrace::engine
