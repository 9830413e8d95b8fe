#pragma once
/// @file word_pool.h
/// Blocks of 64-bit words that are recycled and never unmapped, for structures that are read
/// without a lock.
///
/// A reader may still look at a block that was given back meanwhile: it reads words of another
/// owner, and finds out afterwards that what led it there has changed. For that every word is read
/// with acquire and written with release: a reader that saw a word of the new owner sees, too, that
/// the old one is gone.
///
/// Threads:  one writer (take, give, store) at a time; at() and load() from any.
/// Errors:   take() gives 0 when the pool is full or memory is out.

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace convtrace::cupti {

[[nodiscard]] inline uint64_t load_word(const uint64_t* word) noexcept {
  // atomic_ref takes no const object before C++26.
  return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}
inline void store_word(uint64_t* word, uint64_t value) noexcept {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

/// @return memory that reads as zero and costs nothing until it is touched; null if there is none.
inline uint64_t* map_words(size_t count) noexcept {
  void* const memory = mmap(nullptr, count * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint64_t*>(memory);
}
inline void unmap_words(uint64_t* words, size_t count) noexcept {
  if (words != nullptr) munmap(words, count * sizeof(uint64_t));
}

/// A block is 2^n units; its index counts units and is never 0.
/// @tparam kUnitWords smallest block. @tparam kIndexBits how many units there may be.
template <size_t kUnitWords, unsigned kIndexBits>
class WordPool {
 public:
  static constexpr unsigned kClasses = 12;

  WordPool() = default;
  ~WordPool() {
    for (auto& chunk : chunks_) unmap_words(chunk.load(), kChunkWords + kTailWords);
  }
  WordPool(const WordPool&) = delete;
  WordPool& operator=(const WordPool&) = delete;

  /// @return a block of 2^size_class units, its words unspecified.
  uint32_t take(unsigned size_class) noexcept {
    uint32_t& free = free_[size_class];
    if (free != 0) {
      const uint32_t block = free;
      free = static_cast<uint32_t>(load_word(at(block)));
      return block;
    }
    const uint32_t units = uint32_t{1} << size_class;
    // At a multiple of its size, so that small blocks do not cross cache lines, nor any a chunk.
    next_ = (next_ + units - 1) & ~(units - 1);
    if (next_ + units > kMaxUnits) return 0;
    std::atomic<uint64_t*>& chunk = chunks_[next_ / kChunkUnits];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      uint64_t* const words = map_words(kChunkWords + kTailWords);
      if (words == nullptr) return 0;
      chunk.store(words, std::memory_order_release);
    }
    const uint32_t block = next_;
    next_ += units;
    return block;
  }

  /// Only when nothing leads to the block any more.
  void give(uint32_t block, unsigned size_class) noexcept {
    store_word(at(block), free_[size_class]);
    free_[size_class] = block;
  }

  /// @pre the index was read from something that still held.
  /// @return the block; 64 words from there may be read, whatever it is by now.
  [[nodiscard]] uint64_t* at(uint32_t block) const noexcept {
    return chunks_[block / kChunkUnits].load(std::memory_order_acquire) +
           block % kChunkUnits * kUnitWords;
  }

  /// Memory touched so far.
  [[nodiscard]] uint64_t bytes() const noexcept {
    return uint64_t{next_} * kUnitWords * sizeof(uint64_t);
  }

 private:
  static constexpr uint32_t kMaxUnits = uint32_t{1} << kIndexBits;
  static constexpr size_t kChunkWords = size_t{1} << 17;  // 1 MiB
  static constexpr uint32_t kChunkUnits = kChunkWords / kUnitWords;
  static constexpr size_t kTailWords = 64;  ///< what at() allows behind the last block

  std::array<std::atomic<uint64_t*>, kMaxUnits / kChunkUnits> chunks_{};
  std::array<uint32_t, kClasses> free_{};  ///< heads of lists through the first word
  uint32_t next_ = 1;
};

}  // namespace convtrace::cupti
