#pragma once
/// @file problem.h
/// A problem of a file: what, where, and how many bytes were skipped because of it.

#include <cstdint>
#include <string>
#include <vector>

namespace convtrace::reader {

struct Problem {
  uint64_t offset = 0;  ///< from file start
  uint64_t bytes = 0;   ///< skipped
  std::string text;
};

/// Collects problems. A hostile file may have millions: beyond kKept they are only counted.
class ProblemList {
 public:
  static constexpr size_t kKept = 1000;

  void add(uint64_t offset, uint64_t bytes, std::string text) {
    ++count_;
    skipped_bytes_ += bytes;
    if (kept_.size() < kKept) kept_.push_back({offset, bytes, std::move(text)});
  }

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] const std::vector<Problem>& kept() const { return kept_; }
  [[nodiscard]] uint64_t skipped_bytes() const { return skipped_bytes_; }

 private:
  std::vector<Problem> kept_;
  uint64_t count_ = 0;
  uint64_t skipped_bytes_ = 0;
};

}  // namespace convtrace::reader
