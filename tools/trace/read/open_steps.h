#pragma once
/// @file open_steps.h
/// The steps of a trace that are being read. Values of a GPU and of other threads come after the
/// events that follow them, so a step stays open until it is whole (record.h).
///
/// Place:    whoever reads the values of a trace step by step.
/// Memory:   three steps.
/// Threads:  one.

#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "format/model/events.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

template <typename Step>
class OpenSteps {
 public:
  /// @return null: that step was taken out, so what is read of it now came too late.
  Step* at(uint32_t number) {
    if (number < next_) return nullptr;
    const auto [entry, is_new] = steps_.try_emplace(number);
    if (is_new && spare_) entry->second = *std::exchange(spare_, std::nullopt);
    return &entry->second;
  }

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  [[nodiscard]] uint32_t first() const { return steps_.begin()->first; }
  [[nodiscard]] uint32_t last() const { return std::prev(steps_.end())->first; }
  [[nodiscard]] const Step* find(uint32_t number) const {
    const auto found = steps_.find(number);
    return found == steps_.end() ? nullptr : &found->second;
  }
  /// The first step that was not taken out.
  [[nodiscard]] uint64_t next() const { return next_; }

  /// kNoStep sorts last and does not show how far the other steps are.
  [[nodiscard]] bool is_first_whole() const {
    if (steps_.empty()) return false;
    auto newest = std::prev(steps_.end());
    if (newest->first == format::kNoStep && newest != steps_.begin()) --newest;
    return newest->first != format::kNoStep && is_whole(first(), newest->first);
  }
  /// @pre not empty().
  std::pair<uint32_t, Step> take_first() {
    const auto begin = steps_.begin();
    std::pair<uint32_t, Step> taken{begin->first, std::move(begin->second)};
    next_ = uint64_t{begin->first} + 1;
    steps_.erase(begin);
    return taken;
  }
  /// @param step  cleared; its memory is used for the next one.
  void reuse(Step step) { spare_ = std::move(step); }

 private:
  std::map<uint32_t, Step> steps_;
  std::optional<Step> spare_;
  uint64_t next_ = 0;
};

}  // namespace convtrace::diff
