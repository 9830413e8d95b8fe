#pragma once
/// @file life_table.h
/// Allocations by the events of a trace: the live ones, and those that were freed last at each
/// address.
/// Two layers, as in cupti/memory/address_map.h: memory of the driver, and blocks of a framework
/// inside it. A new range ends the ranges of its layer that it overlaps.
///
/// Place:    used by memory_judge.h.
/// Threads:  one.
/// Memory:   32 bytes an allocation, 8 in the table of live ones, 12 in the index of addresses. A
///           freed one is kept until 65536 later frees, or until its memory is allocated again.

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "format/findings/memory/address_index.h"
#include "format/findings/memory/stream_order.h"
#include "format/model/events.h"

namespace convtrace::judge {

/// An allocation. Packed, because there may be a million.
struct Life {
  static constexpr uint64_t kMask48 = (uint64_t{1} << 48) - 1;
  uint64_t base : 48 = 0;
  uint64_t use_stream : 16 = 0;  ///< stream of the last use; while `inherited`: of the former one's
  uint64_t bytes : 48 = 0;
  uint64_t source : 4 = 0;
  uint64_t freed : 1 = 0;
  uint64_t inherited : 1 = 0;  ///< the use belongs to a former allocation of the memory
  /// A driver's range with blocks that were allocated during a capture.
  uint64_t of_graphs : 1 = 0;
  uint64_t has_blocks : 1 = 0;  ///< a driver's range in which a framework allocates blocks
  uint64_t generation : 48 = 0;
  uint64_t more_uses : 1 = 0;  ///< there are uses in other streams: LifeTable::more_uses()
  uint32_t position = 0;       ///< position of that use in its stream; 0: no use
  uint32_t freed_in_step = 0;  ///< while `inherited`: step in which the former allocation was freed

  [[nodiscard]] uint64_t end() const { return base + bytes; }
  [[nodiscard]] bool holds(uint64_t address) const { return address - base < bytes; }
  [[nodiscard]] Use use() const { return {static_cast<uint16_t>(use_stream), position}; }
  /// Both are below 2^48, like all addresses.
  void set_range(uint64_t first, uint64_t size) {
    base = first & kMask48;
    bytes = size & kMask48;
  }
  void set_use(Use use) {
    use_stream = use.stream;
    position = use.position;
  }
};
static_assert(sizeof(Life) == 32);

class LifeTable {
 public:
  static constexpr size_t kMostFreed = size_t{1} << 16;
  enum class Layer : uint8_t { kBlock = 0, kDriver = 1 };
  static constexpr Layer layer_of(format::MemorySource source) {
    return source == format::MemorySource::kFramework ? Layer::kBlock : Layer::kDriver;
  }

  /// Adds an allocation. Freed ones at its place are forgotten, apart from their parts outside of
  /// it.
  /// @param[out] before  the freed allocations; their uses are still in more_uses().
  /// @return null if no allocator can return such a range.
  Life* begin(const format::Alloc& event, std::vector<Life>& before);
  /// Ends an allocation. @return null if it is not known.
  Life* end(const format::Free& event);

  /// @return the allocation of that generation; null if it is not live, or not known. Valid until
  /// the next change.
  [[nodiscard]] Life* living(uint64_t generation) {
    const uint32_t record = living_.find(generation);
    if (record == AddressIndex::kNone) return nullptr;
    Life& life = lives_[record];
    return life.generation == generation ? &life : nullptr;
  }
  /// @return the live allocation at an address in a layer, or the one that was freed there last;
  /// null if neither is known.
  [[nodiscard]] Life* at(uint64_t address, Layer layer);

  /// Uses in streams other than that of the last use.
  [[nodiscard]] std::vector<Use>& more_uses(Life& life) {
    Uses& uses = more_uses_[life.generation];
    if (life.more_uses == 0) uses.parts = 1;
    life.more_uses = 1;
    return uses.list;
  }
  /// Removes all of them for this allocation, or this part of one.
  void drop_uses(Life& life) {
    if (life.more_uses == 0) return;
    life.more_uses = 0;
    const auto found = more_uses_.find(life.generation);
    if (--found->second.parts == 0) more_uses_.erase(found);
  }

  void clear();
  [[nodiscard]] size_t size() const { return lives_.size() - unused_.size(); }
  [[nodiscard]] uint64_t bytes() const;

 private:
  struct Uses {
    std::vector<Use> list;
    uint32_t parts = 0;  ///< number of parts of the allocation that are left
  };
  /// Allocations by record; grows without reserving as much again.
  class Lives {
   public:
    [[nodiscard]] Life& operator[](uint32_t record) {
      return (*parts_[record / kPart])[record % kPart];
    }
    /// @return a new record.
    uint32_t add() {
      if (size_ % kPart == 0) parts_.push_back(std::make_unique<std::array<Life, kPart>>());
      return size_++;
    }
    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] size_t bytes() const {
      return parts_.size() * kPart * sizeof(Life) + parts_.capacity() * sizeof(parts_[0]);
    }

   private:
    static constexpr uint32_t kPart = 1024;
    std::vector<std::unique_ptr<std::array<Life, kPart>>> parts_;
    uint32_t size_ = 0;
  };
  /// Maps generations of live allocations to records: open addressing, with four consecutive
  /// generations near each other, since they are used together. Entries are told apart by the lower
  /// half of their generation, so the caller compares the record's generation.
  class Living {
   public:
    void put(uint64_t generation, uint32_t record);
    /// @pre it is in the table.
    void erase(uint64_t generation);
    [[nodiscard]] uint32_t find(uint64_t generation) const {
      return slots_[slot_of(tag_of(generation))].record;
    }
    [[nodiscard]] size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

   private:
    struct Slot {
      uint32_t record = AddressIndex::kNone;
      uint32_t tag = 0;
    };
    static constexpr unsigned kNearBits = 2;
    static uint32_t tag_of(uint64_t generation) { return static_cast<uint32_t>(generation); }
    [[nodiscard]] size_t home(uint32_t tag) const {
      const uint64_t row = (tag >> kNearBits) * 0x9E3779B97F4A7C15 >> shift_;
      return row << kNearBits | (tag & ((1u << kNearBits) - 1));
    }
    /// @return the slot of the tag, or an empty one if there is none.
    [[nodiscard]] size_t slot_of(uint32_t tag) const {
      size_t at = home(tag);
      // An empty slot has tag 0.
      while (slots_[at].tag != tag && slots_[at].record != AddressIndex::kNone)
        at = (at + 1) & mask_;
      return at;
    }
    void grow();

    static constexpr unsigned kFewestBits = 6;
    std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kFewestBits);
    size_t mask_ = (size_t{1} << kFewestBits) - 1;
    size_t count_ = 0;
    unsigned shift_ = 64 + kNearBits - kFewestBits;
  };

  AddressIndex& index_of(Layer layer) { return index_[static_cast<size_t>(layer)]; }
  uint32_t add(const Life& life);
  void remove(uint32_t record);
  uint32_t take_place(const Life& life, Layer layer, std::vector<Life>& before);
  void keep_part(const Life& old, uint64_t from, uint64_t to);
  void cut(uint64_t first, uint64_t end, Layer layer, std::vector<Life>* before);
  void remember_freed(uint32_t record);

  Lives lives_;
  std::vector<uint32_t> unused_;
  Living living_;
  AddressIndex index_[2];
  struct Freed {
    uint32_t record = 0;
    uint32_t tag = 0;  ///< lower half of its generation; shows whether the record was reused
  };
  std::vector<Freed> freed_;  ///< a ring once it is full
  size_t oldest_freed_ = 0;
  std::unordered_map<uint64_t, Uses> more_uses_;  ///< by generation
};

}  // namespace convtrace::judge
