#pragma once
/// @file word_pool.h
/// Blocks of 64-bit words that are recycled and never unmapped, for structures that are read
/// without a lock.
///
/// A reader may still use a block that was given back meanwhile. It then reads words of another
/// owner, and finds out afterwards that the word which led it there has changed. To guarantee that,
/// every word is read with acquire and written with release: a reader that saw a word of the new
/// owner also sees that the old owner has given the block back.
///
/// Threads:  one writer (take, give, store) at a time; at() and load() from any.
/// Errors:   take() returns 0 when the pool is full or no memory can be mapped.

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace convtrace::cupti {

[[nodiscard]] inline uint64_t load_word(const uint64_t* word) noexcept {
  // atomic_ref accepts no const object before C++26.
  return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}
inline void store_word(uint64_t* word, uint64_t value) noexcept {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

/// @return memory that is zero and takes no physical page until it is used; null if mapping failed.
inline uint64_t* map_words(size_t count) noexcept {
  void* const memory = mmap(nullptr, count * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint64_t*>(memory);
}
inline void unmap_words(uint64_t* words, size_t count) noexcept {
  if (words != nullptr) munmap(words, count * sizeof(uint64_t));
}

/// A block is 2^n units. Its index counts units and is never 0.
/// @tparam kUnitWords  of the smallest block. @tparam kIndexBits  the pool has at most 2^kIndexBits
/// units.
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
    // Aligned to its size, so that a small block never crosses a cache line and no block crosses a
    // chunk.
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

  /// Call only when nothing refers to the block any more.
  void give(uint32_t block, unsigned size_class) noexcept {
    store_word(at(block), free_[size_class]);
    free_[size_class] = block;
  }

  /// @pre the index was read from a word that was valid at that time.
  /// @return the block. 64 words from there may be read, whoever owns it by now.
  [[nodiscard]] uint64_t* at(uint32_t block) const noexcept {
    return chunks_[block / kChunkUnits].load(std::memory_order_acquire) +
           block % kChunkUnits * kUnitWords;
  }

  /// @return bytes of memory used so far.
  [[nodiscard]] uint64_t bytes() const noexcept {
    return uint64_t{next_} * kUnitWords * sizeof(uint64_t);
  }

 private:
  static constexpr uint32_t kMaxUnits = uint32_t{1} << kIndexBits;
  static constexpr size_t kChunkWords = size_t{1} << 17;  // 1 MiB
  static constexpr uint32_t kChunkUnits = kChunkWords / kUnitWords;
  /// Words behind the last block that at() allows to read.
  static constexpr size_t kTailWords = 64;

  std::array<std::atomic<uint64_t*>, kMaxUnits / kChunkUnits> chunks_{};
  /// Heads of free lists, which are linked through the first words of blocks.
  std::array<uint32_t, kClasses> free_{};
  uint32_t next_ = 1;
};

}  // namespace convtrace::cupti
