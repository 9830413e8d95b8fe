#pragma once
/// @file stats_columns.h
/// Tensor statistics of a chunk, predicted from the record of the same key before.
///
/// Place:    event_encoder.cpp; reader/columns/stats_rows.h is its mirror.
/// Threads:  one owner thread.
/// Source:   format/FORMAT.md section 6.4.

#include <memory>

#include "format/file/columns/row_columns.h"
#include "format/file/columns/stats_words.h"
#include "format/model/events.h"

namespace convtrace::format {

namespace wire {
struct StatsColumnsT;
}

class StatsColumns {
 public:
  void put(const TensorStats& event);
  [[nodiscard]] size_t packed_bytes() const;
  /// @return nothing when there are no statistics.
  [[nodiscard]] std::unique_ptr<wire::StatsColumnsT> pack() const;
  void clear();

 private:
  void put_sketch(const Sketch& sketch);

  RowColumns<21, 10 + kStatsWords> rows_;
  PackedColumn shape_;   ///< one row per dimension of a signature
  PackedColumn sketch_;  ///< kBuckets rows per record with a sketch
  size_t dims_ = 0, buckets_ = 0;
  std::vector<uint64_t> hash_, range_hashes_, pad_rows_;
  std::vector<uint8_t> samples_, leading_;
};

}  // namespace convtrace::format
