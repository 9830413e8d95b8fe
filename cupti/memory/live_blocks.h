#pragma once
/// @file live_blocks.h
/// Finds a live block of a framework by its first address, as most pointers of a launch are, with one
/// cache line and no search.
///
/// An entry belongs to the block that took it last. A block that has lost its entry to another one,
/// and an address inside a block, are found in the address table alone.
///
/// Threads:  one writer (begin, end) at a time; generation_at() from any.
/// Memory:   256 KiB from the first block on. Where it cannot be mapped, nothing is found here.
/// Source:   measurements in tests/bench/address_bench.cpp.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cupti/memory/word_pool.h"

namespace convtrace::cupti {

class LiveBlocks {
 public:
  LiveBlocks() = default;
  ~LiveBlocks() { unmap_words(entries_.load(), kEntries * kEntryWords); }
  LiveBlocks(const LiveBlocks&) = delete;
  LiveBlocks& operator=(const LiveBlocks&) = delete;

  /// A thread that gets the address afterwards finds the block.
  void begin(uint64_t base, uint64_t generation) noexcept {
    uint64_t* entries = entries_.load(std::memory_order_relaxed);
    if (entries == nullptr) {
      entries = map_words(kEntries * kEntryWords);
      entries_.store(entries, std::memory_order_release);
    }
    if (entries == nullptr) return;
    uint64_t* const entry = entry_of(entries, base);
    store_word(entry + kGeneration, 0);  // no reader may pair the former one with the new base
    store_word(entry + kBase, base);
    store_word(entry + kGeneration, generation);
  }

  void end(uint64_t base, uint64_t generation) noexcept {
    uint64_t* const entries = entries_.load(std::memory_order_relaxed);
    if (entries == nullptr) return;
    uint64_t* const known = entry_of(entries, base) + kGeneration;
    if (load_word(known) == generation) store_word(known, 0);
  }

  /// @return the generation of the live block that begins at `address`; 0: none is known here.
  [[nodiscard]] uint64_t generation_at(uint64_t address) const noexcept {
    uint64_t* const entries = entries_.load(std::memory_order_acquire);
    if (entries == nullptr) return 0;
    const uint64_t* const entry = entry_of(entries, address);
    const uint64_t generation = load_word(entry + kGeneration);
    if (load_word(entry + kBase) != address) return 0;
    // No generation is used twice: an equal one means that the entry was not changed in between.
    return load_word(entry + kGeneration) == generation ? generation : 0;
  }

  [[nodiscard]] uint64_t bytes() const noexcept {
    return entries_.load(std::memory_order_relaxed) == nullptr ? 0 : kEntries * kEntryWords * 8;
  }

 private:
  /// With 2000 blocks, as a training step may have, one in 16 has lost its entry.
  static constexpr unsigned kEntryBits = 14;
  static constexpr size_t kEntries = size_t{1} << kEntryBits;
  static constexpr size_t kBase = 0, kGeneration = 1, kEntryWords = 2;

  /// Frameworks align blocks to 512 bytes. The product spreads the other bits over its upper ones.
  static uint64_t* entry_of(uint64_t* entries, uint64_t address) noexcept {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
    return entries + ((address >> 9) * kGolden >> (64 - kEntryBits)) * kEntryWords;
  }

  std::atomic<uint64_t*> entries_{nullptr};
};

}  // namespace convtrace::cupti
