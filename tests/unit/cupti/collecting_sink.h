#pragma once
/// @file collecting_sink.h
/// Keeps what is emitted, with the borrowed parts copied.

#include <deque>
#include <mutex>
#include <variant>
#include <vector>

#include "format/model/event_sink.h"

namespace convtrace::cupti {

class CollectingSink final : public format::EventSink {
 public:
  void emit(const format::Event& event) noexcept override {
    const std::lock_guard lock(mutex_);
    format::Event copy = event;
    if (auto* launch = std::get_if<format::Launch>(&copy)) {
      operands_.emplace_back(launch->operands.begin(), launch->operands.end());
      launch->operands = operands_.back();
    }
    if (auto* stats = std::get_if<format::TensorStats>(&copy)) {
      stats->shape = numbers_.emplace_back(stats->shape.begin(), stats->shape.end());
      stats->range_hashes =
          numbers_.emplace_back(stats->range_hashes.begin(), stats->range_hashes.end());
      stats->samples = bytes_.emplace_back(stats->samples.begin(), stats->samples.end());
    }
    if (auto* diagnostic = std::get_if<format::Diagnostic>(&copy)) {
      diagnostic->site = texts_.emplace_back(diagnostic->site);
      diagnostic->message = texts_.emplace_back(diagnostic->message);
    }
    events_.push_back(copy);
  }

  template <typename Kind>
  [[nodiscard]] std::vector<Kind> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<Kind> found;
    for (const format::Event& event : events_)
      if (const auto* one = std::get_if<Kind>(&event)) found.push_back(*one);
    return found;
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
    operands_.clear();
    numbers_.clear();
    bytes_.clear();
    texts_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<format::Event> events_;
  std::deque<std::vector<format::Operand>> operands_;
  std::deque<std::vector<uint64_t>> numbers_;
  std::deque<std::vector<std::byte>> bytes_;
  std::deque<std::string> texts_;
};

}  // namespace convtrace::cupti
