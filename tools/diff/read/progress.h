#pragma once
/// @file progress.h
/// A progress line for a person at a terminal.

#include <chrono>
#include <cstdint>
#include <ostream>

namespace convtrace::diff {

class Progress {
 public:
  explicit Progress(std::ostream& out) : out_(out), begun_(Clock::now()), shown_(begun_) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// @param done, @param total  records of both runs.
  void update(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  std::ostream& out_;
  Clock::time_point begun_, shown_;
  bool visible_ = false;
};

}  // namespace convtrace::diff
