#pragma once
/// @file pool.h
/// Many values of one type that come and go, by number. Numbers and addresses stay while a value
/// lives, and memory is used again.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace convtrace::origin {

template <typename T>
class Pool {
 public:
  uint32_t add(const T& value) {
    if (free_.empty()) grow();
    const uint32_t number = free_.back();
    free_.pop_back();
    (*this)[number] = value;
    return number;
  }
  void drop(uint32_t number) { free_.push_back(number); }

  [[nodiscard]] T& operator[](uint32_t number) {
    return blocks_[number / kOfBlock][number % kOfBlock];
  }
  [[nodiscard]] const T& operator[](uint32_t number) const {
    return blocks_[number / kOfBlock][number % kOfBlock];
  }
  [[nodiscard]] size_t in_use() const { return blocks_.size() * kOfBlock - free_.size(); }

 private:
  static constexpr uint32_t kOfBlock = 128;

  void grow() {
    const uint32_t first = static_cast<uint32_t>(blocks_.size()) * kOfBlock;
    blocks_.push_back(std::make_unique<T[]>(kOfBlock));
    for (uint32_t i = kOfBlock; i-- > 0;) free_.push_back(first + i);
  }

  std::vector<std::unique_ptr<T[]>> blocks_;
  std::vector<uint32_t> free_;
};

}  // namespace convtrace::origin
