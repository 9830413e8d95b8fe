#pragma once
/// @file address_table.h
/// From an address to the range it belongs to: a radix table over pages of 2 MiB, read without a
/// lock.
///
/// Two levels of slots cover 48 bits of address space. A slot says at once which range a whole page
/// belongs to, or leads to a short list of the pieces inside; a page with many small pieces is
/// split into 64 parts, and those again.
///
/// Reading:  no lock, no waiting, nothing written. Lists are replaced, never changed. A reader that
///           was overtaken by a change of just this part looks again; see word_pool.h.
/// Writing:  one thread at a time (address_map.h holds a lock).
/// Memory:   32 bytes a range, about 8 a piece, 8 a page of a large range; recycled at once when
///           nothing refers to it. Ranges beyond 16 TiB, 48 bits or 4 Mi at a time are not kept.
/// Source:   measurements in tests/bench/address_bench.cpp.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cupti/memory/address_slot.h"
#include "cupti/memory/word_pool.h"

namespace convtrace::cupti {

/// What a launch records of each of its pointers.
struct MemoryAllocation {
  static constexpr bool kWithFreedBlock = false;
  uint64_t base = 0;
  uint64_t generation = 0;  ///< 0: none
};

/// One life of a range: four words, so that two share a cache line.
struct RangeRecord {
  uint64_t base = 0;
  uint64_t bytes_and_tag = 0;  ///< bytes in the lower 48 bits; 16 bits of the owner's above
  uint64_t generation = 0;
  uint64_t stream = 0;

  static constexpr size_t kBaseWord = 0, kGenerationWord = 2;  ///< where others look too
  static constexpr unsigned kBytesBits = 48;
  [[nodiscard]] uint64_t bytes() const { return bytes_and_tag & ((uint64_t{1} << kBytesBits) - 1); }
  [[nodiscard]] uint16_t tag() const { return static_cast<uint16_t>(bytes_and_tag >> kBytesBits); }
  /// Memory of unknown size is known by its base alone.
  [[nodiscard]] uint64_t last() const { return base + (bytes() > 1 ? bytes() - 1 : 0); }
};

[[nodiscard]] inline RangeRecord load_record(const uint64_t* words) noexcept {
  return {.base = load_word(words),
          .bytes_and_tag = load_word(words + 1),
          .generation = load_word(words + 2),
          .stream = load_word(words + 3)};
}

class AddressTable {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 44;
  static constexpr unsigned kAddressBits = 48;
  static constexpr uint64_t kAddressLimit = uint64_t{1} << kAddressBits;
  static constexpr unsigned kPageShift = 21;
  static constexpr uint64_t kPageBytes = uint64_t{1} << kPageShift;

  AddressTable();
  ~AddressTable();
  AddressTable(const AddressTable&) = delete;
  AddressTable& operator=(const AddressTable&) = delete;

  struct Found {
    static constexpr bool kWithFreedBlock = true;
    RangeRecord range;
    Layer layer = Layer::kFreed;
    /// Generation of the block freed here last while the driver's memory around it lives on.
    uint64_t freed_block = 0;
  };
  /// Any thread: a quick no, for the many words that are no addresses. One branch, not two: sizes
  /// lie below all memory and floats above, in no order that a processor could foresee.
  [[nodiscard]] bool may_hold(uint64_t address) const noexcept {
    const uint64_t lowest = lowest_.load(std::memory_order_relaxed);
    return address - lowest < kAddressLimit - lowest;
  }
  /// Any thread. @pre may_hold(address). @return whether the address belongs to any range.
  bool find(uint64_t address, Found& found) const noexcept;

  /// Any thread: the same for those who need no more, in half the time.
  [[nodiscard]] MemoryAllocation allocation_at(uint64_t address) const noexcept;

  /// Whether a range is one that an allocator may give.
  [[nodiscard]] static bool keeps(const RangeRecord& range) {
    return range.bytes() <= kMaxBytes && range.base < kAddressLimit && range.last() < kAddressLimit;
  }
  /// Begins a life in `layer`. What was freed there before is forgotten.
  /// @pre keeps(range); nothing lives there in that layer (live_in()).
  /// @return false if there are too many, or memory is out.
  bool begin(const RangeRecord& range, Layer layer);
  /// Ends it: from now on it is what was freed there last.
  void end(uint32_t record, Layer layer);
  /// Has what forget() looks at of a record fetched into the cache.
  void prefetch(uint32_t record) const noexcept {
    __builtin_prefetch(references_.data() + record);
    __builtin_prefetch(records_.at(record));
  }
  /// Forgets a freed range. Does nothing if its record means another one by now.
  /// @param generation lower half of its generation.
  void forget(uint32_t record, uint32_t generation);

  /// @return a live record of `layer` that holds any of [first, last], from the first page where
  /// there is one; 0 if there is none.
  [[nodiscard]] uint32_t live_in(uint64_t first, uint64_t last, Layer layer) const;
  /// @return the live record of `layer` that holds the address; 0 if there is none.
  [[nodiscard]] uint32_t live_at(uint64_t address, Layer layer) const {
    const uint64_t* const slot = page_slot(address);
    return slot == nullptr ? 0 : live_in_slot(slot, kPageShift, address, address, layer);
  }
  /// @return what a live record says.
  [[nodiscard]] RangeRecord at(uint32_t record) const { return load_record(records_.at(record)); }
  /// Memory touched.
  [[nodiscard]] uint64_t bytes() const;

 private:
  static constexpr unsigned kFanShift = 6;
  /// Spans of 8 bytes have few enough pieces.
  static constexpr unsigned kMinShift = kPageShift - 3 * kFanShift;
  static constexpr unsigned kLeafShift = 13;  ///< pages of a leaf: 16 GiB
  static constexpr size_t kLeafSlots = size_t{1} << kLeafShift;
  static constexpr size_t kLeaves = size_t{1} << (kAddressBits - kPageShift - kLeafShift);
  static constexpr size_t kFan = size_t{1} << kFanShift;

  /// The pieces of one span while they are changed.
  struct Span {
    Pieces layers[kLayers];
    [[nodiscard]] size_t total() const;
  };

  /// A record goes from one layer to another.
  struct Change {
    Change(uint32_t which, std::optional<Layer> left, std::optional<Layer> entered);
    uint32_t record;
    std::optional<Layer> from, to;
    Slot whole_before, whole_after;  ///< of a span that is all of the record's range
  };

  enum class Answer { kFound, kNothing, kOvertaken };  ///< overtaken by a change: look again
  template <typename Kept>
  bool find_as(uint64_t address, Kept& kept) const noexcept;
  template <typename Kept>
  Answer look_in_node(const uint64_t* slot, Slot content, uint64_t address,
                      Kept& kept) const noexcept;
  template <typename Path, typename Kept>
  Answer look(const Path& path, Slot content, uint64_t offset, Kept& kept) const noexcept;
  [[nodiscard]] uint64_t* page_slot(uint64_t address) const noexcept {
    uint64_t* const leaf =
        leaves_[address >> (kPageShift + kLeafShift)].load(std::memory_order_acquire);
    return leaf == nullptr ? nullptr : leaf + (address >> kPageShift & (kLeafSlots - 1));
  }
  uint64_t* make_page_slot(uint64_t address);
  [[nodiscard]] static size_t whole_pages(uint64_t at, uint64_t last);

  void apply(const Change& change);
  void apply(const Change& change, uint64_t* slot, unsigned shift, uint64_t first, uint64_t last);
  size_t apply_to_whole(const Change& change, uint64_t* slots, size_t count);
  bool apply_to_list(const Change& change, uint64_t* slot, uint64_t first, uint64_t last);
  void load_span(Slot slot, uint64_t last_offset, Span& span) const;
  void apply(const Change& change, Span& span, uint64_t first, uint64_t last);
  /// Each makes what a slot is to hold, without a version; give_up() when memory is out.
  Slot make_content(const Span& span, unsigned shift);
  Slot make_list(const Span& span);
  Slot make_node(const Span& span, unsigned shift);
  Slot give_up(const Span& span);
  void replace(uint64_t* slot, Slot content);
  void merge(uint64_t* slot);

  void cut(Pieces& pieces, uint64_t first, uint64_t last);
  void insert(Pieces& pieces, Piece piece);
  void remove(Pieces& pieces, uint32_t record);
  void refer(uint32_t record, uint32_t times = 1) { references_[record] += times; }
  void let_go(uint32_t record, uint32_t times = 1);

  [[nodiscard]] uint32_t live_in_slot(const uint64_t* slot, unsigned shift, uint64_t first,
                                      uint64_t last, Layer layer) const;

  WordPool<4, Piece::kRecordBits> records_;
  WordPool<2, 28> lists_;
  std::unique_ptr<std::atomic<uint64_t*>[]> leaves_;
  std::atomic<uint64_t> lowest_{kAddressLimit};  ///< base of all ranges ever

  std::vector<uint32_t> references_;  ///< by record: pieces and whole slots that name it
  std::vector<uint32_t> unreferenced_;
  uint32_t version_ = 0;
  uint64_t leaf_bytes_ = 0;
  Span scratch_;
};

}  // namespace convtrace::cupti
