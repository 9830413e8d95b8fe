#pragma once
/// @file cpu_blocks.h
/// The live blocks of PyTorch's CPU allocator, found by any address in them.
///
/// Why:      an ordered map takes a fifth of the instructions of cupti::AddressMap, whose lookups need no
///           lock and which remembers freed memory. A step allocates and frees hundreds of small CPU
///           tensors, and only messages about tensors look them up.
/// Threads:  one at a time.

#include <cstdint>
#include <map>

namespace convtrace::engine {

struct CpuBlock {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;  ///< 0: there is no such block
};

class CpuBlocks {
 public:
  /// Adds a block and removes those that it overlaps, whose frees were not seen.
  void begin(const CpuBlock& block) {
    auto next = blocks_.lower_bound(block.base);
    if (next != blocks_.begin()) {
      const auto before = std::prev(next);
      if (block.base - before->first < before->second.bytes) blocks_.erase(before);
    }
    while (next != blocks_.end() && next->first - block.base < block.bytes)
      next = blocks_.erase(next);
    blocks_.emplace_hint(next, block.base, block);
  }

  /// Removes the block that begins at `base`. @return that block.
  CpuBlock end(uint64_t base) {
    const auto found = blocks_.find(base);
    if (found == blocks_.end()) return {};
    const CpuBlock block = found->second;
    blocks_.erase(found);
    return block;
  }

  /// @return the block that contains `address`.
  [[nodiscard]] CpuBlock at(uint64_t address) const {
    const auto behind = blocks_.upper_bound(address);
    if (behind == blocks_.begin()) return {};
    const CpuBlock& block = std::prev(behind)->second;
    return address - block.base < block.bytes ? block : CpuBlock{};
  }

  void clear() { blocks_.clear(); }
  [[nodiscard]] auto begin() const { return blocks_.begin(); }
  [[nodiscard]] auto end() const { return blocks_.end(); }

 private:
  std::map<uint64_t, CpuBlock> blocks_;
};

}  // namespace convtrace::engine
