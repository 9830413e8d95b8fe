#pragma once
/// @file address_table.h
/// Maps an address to the range that contains it: a radix table over pages of 2 MiB, read without a
/// lock.
///
/// Two levels of slots cover an address space of 48 bits. A slot either names the range that covers
/// the whole page or points to a short list of the pieces in the page. A page with many small
/// pieces is split into 64 parts, and each part into 64 again.
///
/// Reading:  no lock, no waiting, no writes. Lists are replaced and never changed. A reader whose
///           slot changed meanwhile looks again; see word_pool.h.
/// Writing:  one thread at a time (address_map.h holds a lock).
/// Memory:   32 bytes a range, about 8 a piece, 8 a page of a large range; recycled as soon as
///           nothing refers to it. Limits: ranges of 16 TiB, addresses of 48 bits, 4 Mi ranges at a
///           time.
/// Source:   measurements in tests/bench/address_bench.cpp.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cupti/memory/address_slot.h"
#include "cupti/memory/word_pool.h"

namespace convtrace::cupti {

/// The facts about an allocation that a launch records for each of its pointers.
struct MemoryAllocation {
  static constexpr bool kWithFreedBlock = false;
  uint64_t base = 0;
  uint64_t generation = 0;  ///< 0: none
};

/// One lifetime of a range: four words, so that two records share a cache line.
struct RangeRecord {
  uint64_t base = 0;
  uint64_t bytes_and_tag = 0;  ///< bytes in the lower 48 bits; 16 bits of the owner's above
  uint64_t generation = 0;
  uint64_t stream = 0;

  /// Positions that address_lookup.cpp reads too.
  static constexpr size_t kBaseWord = 0, kGenerationWord = 2;
  static constexpr unsigned kBytesBits = 48;
  [[nodiscard]] uint64_t bytes() const { return bytes_and_tag & ((uint64_t{1} << kBytesBits) - 1); }
  [[nodiscard]] uint16_t tag() const { return static_cast<uint16_t>(bytes_and_tag >> kBytesBits); }
  /// The last address; of memory of unknown size, the base.
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
    /// Generation of the framework's block that was freed here last, where the driver's memory
    /// around it is live.
    uint64_t freed_block = 0;
  };
  /// Any thread: rejects most words that are no addresses, with one branch instead of two. Sizes
  /// lie below all memory and floats above it, in an order that a processor cannot predict.
  [[nodiscard]] bool may_hold(uint64_t address) const noexcept {
    const uint64_t lowest = lowest_.load(std::memory_order_relaxed);
    return address - lowest < kAddressLimit - lowest;
  }
  /// Any thread. @pre may_hold(address). @return whether the address belongs to any range.
  bool find(uint64_t address, Found& found) const noexcept;

  /// Any thread: find() in half the time, for callers that need no more.
  [[nodiscard]] MemoryAllocation allocation_at(uint64_t address) const noexcept;

  /// @return whether the range is within the limits of the table.
  [[nodiscard]] static bool keeps(const RangeRecord& range) {
    return range.bytes() <= kMaxBytes && range.base < kAddressLimit && range.last() < kAddressLimit;
  }
  /// Starts a range in `layer`. Ranges that were freed there before are forgotten.
  /// @pre keeps(range); nothing lives there in that layer (live_in()).
  /// @return false if there are too many ranges, or no memory for the table.
  bool begin(const RangeRecord& range, Layer layer);
  /// Moves a live range into the layer of freed ranges.
  void end(uint32_t record, Layer layer);
  /// Prefetches the parts of a record that forget() reads.
  void prefetch(uint32_t record) const noexcept {
    __builtin_prefetch(references_.data() + record);
    __builtin_prefetch(records_.at(record));
  }
  /// Forgets a freed range. Does nothing if its record belongs to another range by now.
  /// @param generation  lower half of the range's generation.
  void forget(uint32_t record, uint32_t generation);

  /// @return a live record of `layer` that overlaps [first, last], from the first page that has
  /// one; 0: none.
  [[nodiscard]] uint32_t live_in(uint64_t first, uint64_t last, Layer layer) const;
  /// @return the live record of `layer` that holds the address; 0 if there is none.
  [[nodiscard]] uint32_t live_at(uint64_t address, Layer layer) const {
    const uint64_t* const slot = page_slot(address);
    return slot == nullptr ? 0 : live_in_slot(slot, kPageShift, address, address, layer);
  }
  /// @return the contents of a live record.
  [[nodiscard]] RangeRecord at(uint32_t record) const { return load_record(records_.at(record)); }
  /// Memory touched.
  [[nodiscard]] uint64_t bytes() const;

 private:
  static constexpr unsigned kFanShift = 6;
  /// Spans of 8 bytes, the smallest, always have few enough pieces for a list.
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

  /// The move of a record from one layer to another.
  struct Change {
    Change(uint32_t which, std::optional<Layer> left, std::optional<Layer> entered);
    uint32_t record;
    std::optional<Layer> from, to;
    Slot whole_before, whole_after;  ///< for a span that the record's range covers completely
  };

  /// kOvertaken: the slot changed meanwhile, look again.
  enum class Answer { kFound, kNothing, kOvertaken };
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
  /// Each function makes the content of a slot without a version; give_up() when there is no
  /// memory.
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
  std::atomic<uint64_t> lowest_{kAddressLimit};  ///< the lowest base of all ranges so far

  std::vector<uint32_t> references_;  ///< by record: pieces and whole slots that name it
  std::vector<uint32_t> unreferenced_;
  uint32_t version_ = 0;
  uint64_t leaf_bytes_ = 0;
  Span scratch_;
};

}  // namespace convtrace::cupti
