#pragma once
/// @file address_slot.h
/// The words that address_table.h consists of.
///
/// A slot describes a span of 2^shift bytes of addresses:
///
///     slot   version:32  index:28  kind:4
///     list   counts of the layers, 5 bits each; then their pieces, layer by layer
///     piece  first:21  last:21  record:22      offsets in the span, both inclusive
///     node   64 slots, each of a 64th of the span
///
/// Every change of a slot gives it another version. A reader that finds the slot unchanged
/// afterwards knows that everything it reached through the slot was valid meanwhile.
///
/// Threads:  plain values.

#include <array>
#include <cstddef>
#include <cstdint>

namespace convtrace::cupti {

/// The layers of memory that an address can belong to; a lookup returns the first that matches.
enum class Layer : uint8_t {
  kBlock = 0,   ///< a live block of a framework
  kDriver = 1,  ///< live memory of the driver: segments, pools, mappings, registered host memory
  kFreed = 2,   ///< a range that was freed, unless a later one was freed there
};
inline constexpr size_t kLayers = 3;

enum class SlotKind : uint8_t {
  kEmpty = 0,
  kList = 1,
  kNode = 2,
  kWhole = 3,  ///< kWhole + layer: the span is one piece, the index is its record
};

class Slot {
 public:
  constexpr Slot() = default;
  constexpr explicit Slot(uint64_t word) : word_(word) {}
  static constexpr Slot make(SlotKind kind, uint32_t index) {
    return Slot(uint64_t{index} << 4 | static_cast<uint64_t>(kind));
  }
  [[nodiscard]] constexpr Slot with_version(uint32_t version) const {
    return Slot(uint64_t{version} << 32 | static_cast<uint32_t>(word_));
  }
  static constexpr SlotKind whole(Layer layer) {
    return static_cast<SlotKind>(static_cast<uint8_t>(SlotKind::kWhole) +
                                 static_cast<uint8_t>(layer));
  }

  [[nodiscard]] constexpr uint64_t word() const { return word_; }
  [[nodiscard]] constexpr SlotKind kind() const { return static_cast<SlotKind>(word_ & 15); }
  [[nodiscard]] constexpr uint32_t index() const { return static_cast<uint32_t>(word_) >> 4; }
  [[nodiscard]] constexpr bool is_whole() const { return kind() >= SlotKind::kWhole; }
  /// @pre is_whole()
  [[nodiscard]] constexpr Layer layer() const {
    return static_cast<Layer>((word_ & 15) - static_cast<uint8_t>(SlotKind::kWhole));
  }
  /// @return whether the slot alone shows that the span has no piece of `wanted`.
  [[nodiscard]] constexpr bool has_none_of(Layer wanted) const {
    return kind() == SlotKind::kEmpty || (is_whole() && layer() != wanted);
  }
  /// @return whether both slots have the same content, whatever their versions.
  [[nodiscard]] constexpr bool same_content(Slot other) const {
    return static_cast<uint32_t>(word_) == static_cast<uint32_t>(other.word_);
  }

 private:
  uint64_t word_ = 0;
};

/// A piece of a list. Ordered by its first offset.
class Piece {
 public:
  static constexpr unsigned kOffsetBits = 21, kRecordBits = 22;
  static constexpr uint64_t kMaxOffset = (uint64_t{1} << kOffsetBits) - 1;
  static constexpr uint32_t kMaxRecord = (uint32_t{1} << kRecordBits) - 1;

  constexpr Piece() = default;
  constexpr explicit Piece(uint64_t word) : word_(word) {}
  constexpr Piece(uint64_t first, uint64_t last, uint32_t record)
      : word_(first << (kOffsetBits + kRecordBits) | last << kRecordBits | record) {}

  [[nodiscard]] constexpr uint64_t word() const { return word_; }
  [[nodiscard]] constexpr uint64_t first() const { return word_ >> (kOffsetBits + kRecordBits); }
  [[nodiscard]] constexpr uint64_t last() const { return word_ >> kRecordBits & kMaxOffset; }
  [[nodiscard]] constexpr uint32_t record() const {
    return static_cast<uint32_t>(word_) & kMaxRecord;
  }
  constexpr bool operator<(Piece other) const { return word_ < other.word_; }

 private:
  uint64_t word_ = 0;
};

inline constexpr size_t kMaxListed = 31;  ///< a span with more pieces is split

/// The first word of a list: for each layer, the index of the word behind its last piece. The first
/// layer's pieces begin behind the head.
class ListHead {
 public:
  constexpr explicit ListHead(uint64_t word) : word_(word) {}
  static constexpr uint64_t make(size_t blocks, size_t driver, size_t freed) {
    return (1 + blocks) << kBits | (1 + blocks + driver) << (2 * kBits) |
           (1 + blocks + driver + freed) << (3 * kBits) | 1;
  }
  [[nodiscard]] constexpr size_t begin(size_t layer) const { return end_of(layer); }
  [[nodiscard]] constexpr size_t end(size_t layer) const { return end_of(layer + 1); }
  /// @return the head of a list with `by` more pieces in one layer.
  [[nodiscard]] constexpr ListHead with(Layer layer, int by) const {
    uint64_t word = word_;
    for (size_t i = static_cast<size_t>(layer) + 1; i <= kLayers; ++i)
      word += static_cast<uint64_t>(by) << (kBits * i);
    return ListHead(word);
  }
  [[nodiscard]] constexpr uint64_t word() const { return word_; }
  /// Includes the head. Less than 64 for any word, also one that is no head.
  [[nodiscard]] constexpr size_t words() const { return end_of(kLayers); }
  /// @return a bit for each word of the layer.
  [[nodiscard]] constexpr uint64_t mask(Layer layer) const {
    const auto i = static_cast<size_t>(layer);
    return (uint64_t{1} << end(i)) - (uint64_t{1} << begin(i));
  }

 private:
  static constexpr unsigned kBits = 6;
  [[nodiscard]] constexpr size_t end_of(size_t i) const {
    return word_ >> (kBits * i) & ((1 << kBits) - 1);
  }
  uint64_t word_;
};

/// The pieces of one layer in one span: ordered and without overlaps.
class Pieces {
 public:
  [[nodiscard]] size_t size() const { return count_; }
  [[nodiscard]] Piece operator[](size_t i) const { return pieces_[i]; }
  [[nodiscard]] const Piece* begin() const { return pieces_.data(); }
  [[nodiscard]] const Piece* end() const { return pieces_.data() + count_; }

  void clear() { count_ = 0; }
  void push_back(Piece piece) { pieces_[count_++] = piece; }
  void set(size_t i, Piece piece) { pieces_[i] = piece; }
  void insert(size_t i, Piece piece) {
    for (size_t j = count_++; j > i; --j) pieces_[j] = pieces_[j - 1];
    pieces_[i] = piece;
  }
  void erase(size_t i) {
    --count_;
    for (size_t j = i; j < count_; ++j) pieces_[j] = pieces_[j + 1];
  }

 private:
  /// A change adds at most two pieces: it cuts one piece in two and inserts one.
  std::array<Piece, kMaxListed + 2> pieces_;
  size_t count_ = 0;
};

}  // namespace convtrace::cupti
