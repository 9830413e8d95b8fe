#pragma once
/// @file launch_columns.h
/// Collects the launches of a chunk: signatures, and operands that are predicted from a similar
/// launch.
///
/// Place:    event_encoder.cpp; reader/columns/launch_rows.h is its mirror.
/// Why:      no RowColumns, because launches are most of a trace: the data with which operands are
///           compared and predicted lie row after row, so that they are in the cache.
/// Threads:  one owner thread.
/// Source:   format/FORMAT.md section 6.3.

#include "format/file/columns/row_columns.h"
#include "format/file/columns/words.h"

namespace convtrace::format {

class LaunchColumns {
 public:
  /// @param newest  generation of the chunk's last Alloc; 0: none yet.
  /// @return the number of the launch's signature, in order of first use.
  uint32_t put(const Launch& event, uint64_t newest);
  [[nodiscard]] size_t operand_count() const { return pointer_count_; }
  [[nodiscard]] size_t packed_bytes() const;
  /// @return nothing when there are no launches.
  [[nodiscard]] TableWriter::Offset write(flatbuffers::FlatBufferBuilder& builder) const;
  void clear();

 private:
  /// The fixed columns of a launch, several of them in one word.
  using Head = std::array<uint64_t, 7>;
  struct Row {
    uint64_t newest;
    uint32_t first_pointer;
  };
  struct Pointer {
    uint64_t shape = 0;  ///< param, word and confidence
    uint64_t address = 0, generation = 0, offset = 0;
  };
  /// In Pointer::shape: the generation differs from that of the similar launch.
  static constexpr uint64_t kMoved = uint64_t{1} << 63;
  [[nodiscard]] static Head head_of(const Launch& event);
  [[nodiscard]] bool same(size_t row, const Head& head, std::span<const Operand> operands) const;
  void put_signature(const Launch& event);
  void put_pointers(std::span<const Operand> operands, size_t back);

  LikeRows rows_;
  BackColumn back_;
  std::array<PackedColumn, kColumns<Launch>.fixed> fixed_;
  PackedColumn param_, word_, confidence_;      ///< one row per operand of a signature
  PackedColumn address_, generation_, offset_;  ///< one row per operand of a launch
  size_t signature_operands_ = 0;
  std::vector<Head> heads_;  ///< by signature
  std::vector<Row> launches_;
  std::vector<Pointer> pointers_;  ///< operands of all launches, with spare capacity
  size_t pointer_count_ = 0;
};

}  // namespace convtrace::format
