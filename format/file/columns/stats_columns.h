#pragma once
/// @file stats_columns.h
/// Collects the tensor statistics of a chunk, predicted from an earlier record with the same key.
///
/// Place:    event_encoder.cpp; reader/columns/stats_rows.h is its mirror.
/// Threads:  one owner thread.
/// Source:   format/FORMAT.md section 6.4.

#include "format/file/columns/row_columns.h"
#include "format/file/columns/words.h"

namespace convtrace::format {

class StatsColumns {
 public:
  void put(const TensorStats& event);
  [[nodiscard]] size_t packed_bytes() const;
  /// @return nothing when there are no statistics.
  [[nodiscard]] TableWriter::Offset write(flatbuffers::FlatBufferBuilder& builder) const;
  void clear();

 private:
  void put_sketch(const Sketch& sketch);

  RowColumns<kColumns<TensorStats>.fixed, kColumns<TensorStats>.varying> rows_;
  PackedColumn shape_;   ///< one row per dimension of a signature
  PackedColumn sketch_;  ///< kBuckets rows per record with a sketch
  size_t dims_ = 0, buckets_ = 0;
  std::vector<uint64_t> hash_, range_hashes_, pad_rows_;
  std::vector<uint8_t> samples_, leading_;
};

}  // namespace convtrace::format
