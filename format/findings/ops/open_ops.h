#pragma once
/// @file open_ops.h
/// The tagged ops that are running, with a state of each.
///
/// An op that raises an exception has no end event: it is removed with the op around it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/model/events.h"

namespace convtrace::judge {

template <typename State>
class OpenOps {
 public:
  static constexpr size_t kDeepest = 64;

  void begin(const format::Op& event) {
    std::vector<Open>& open = by_thread_[event.header.thread];
    if (open.size() == kDeepest) open.erase(open.begin());
    open.push_back({event.op, {}});
  }
  /// @return the state of the op that ends; nothing if its begin was not seen.
  std::optional<State> end(const format::Op& event) {
    const auto found = by_thread_.find(event.header.thread);
    if (found == by_thread_.end()) return std::nullopt;
    std::vector<Open>& open = found->second;
    size_t depth = open.size();
    while (depth > 0 && open[depth - 1].op != event.op) --depth;
    if (depth == 0) return std::nullopt;
    std::optional<State> state(std::move(open[depth - 1].state));
    open.resize(depth - 1);
    if (open.empty()) by_thread_.erase(found);
    return state;
  }
  /// @return of the innermost op of a thread; null if none is running.
  [[nodiscard]] State* innermost(uint32_t thread) {
    if (by_thread_.empty()) return nullptr;
    const auto found = by_thread_.find(thread);
    return found == by_thread_.end() ? nullptr : &found->second.back().state;
  }
  /// @return of the innermost call of an op on a thread; null if none is running. Within it may be
  /// ops that raised an exception.
  [[nodiscard]] State* of(uint32_t thread, format::StringId op) {
    const auto found = by_thread_.find(thread);
    if (found == by_thread_.end()) return nullptr;
    const auto open = std::find_if(found->second.rbegin(), found->second.rend(),
                                   [op](const Open& one) { return one.op == op; });
    return open == found->second.rend() ? nullptr : &open->state;
  }
  [[nodiscard]] bool any() const { return !by_thread_.empty(); }
  void clear() { by_thread_.clear(); }

 private:
  struct Open {
    format::StringId op;
    State state;
  };
  std::unordered_map<uint32_t, std::vector<Open>> by_thread_;
};

}  // namespace convtrace::judge
