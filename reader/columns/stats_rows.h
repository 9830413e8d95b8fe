#pragma once
/// @file stats_rows.h
/// Decodes the tensor statistics of a chunk one by one.
///
/// Place:    event_decoder.cpp; format/file/columns/stats_columns.h is its mirror.
/// Errors:   bind() detects everything that can be wrong with a hostile chunk.
/// Source:   format/FORMAT.md section 6.4.

#include <algorithm>
#include <span>
#include <vector>

#include "reader/columns/kind_rows.h"

namespace convtrace::reader {

/// The concatenated values of all rows. The number of values of a row is stored elsewhere.
template <typename T>
class FlatColumn {
 public:
  /// @return whether the column can be read. (The FlatBuffers verifier checks that a vector lies
  /// inside the buffer, but not the alignment of its elements.)
  [[nodiscard]] bool bind(const flatbuffers::Vector<T>* values) {
    next_ = 0;
    all_ = {};
    if (values == nullptr) return true;
    if (reinterpret_cast<uintptr_t>(values->Data()) % alignof(T) != 0) return false;
    all_ = std::span<const T>(values->data(), values->size());
    return true;
  }
  [[nodiscard]] size_t size() const { return all_.size(); }
  /// @return the next `count` values. @pre the counts of all rows add up to size()
  [[nodiscard]] std::span<const T> take(size_t count) {
    const size_t begin = next_;
    next_ += count;
    return all_.subspan(begin, count);
  }

 private:
  std::span<const T> all_;
  size_t next_ = 0;
};

class StatsRows {
 public:
  /// @return whether `table` holds exactly `row_count` records.
  [[nodiscard]] bool bind(const wire::StatsColumns* table, size_t row_count);

  /// Sets `event` to the next record, whose spans are valid until the next bind().
  /// @return whether all its enumerators are known. @pre there is one
  bool next(format::EventHeader header, format::Event& event);

  /// @return whether every id (string, scope, kernel) in the events is defined. Events with an
  /// enumerator that this reader does not know are not checked.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const {
    return std::ranges::all_of(signatures_, [&check](const Signature& made) {
      return !made.known || check.resolves(made.event);
    });
  }

 private:
  /// The fixed fields, with the shape.
  struct Signature {
    format::TensorStats event;
    uint8_t rank = 0;
    uint32_t range_count = 0, sample_bytes = 0, leading_bytes = 0, pad_row_count = 0;
    bool known = true;
  };
  [[nodiscard]] bool bind_signatures(const wire::StatsColumns& table);
  [[nodiscard]] bool bind_shapes(const wire::StatsColumns& table);
  [[nodiscard]] bool bind_flat(const wire::StatsColumns& table);
  [[nodiscard]] bool bind_sketches(const wire::StatsColumns& table);

  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
  std::vector<uint64_t> shapes_;
  VaryingOf<format::TensorStats> varying_;
  std::vector<float> buckets_;  ///< buckets of all records with a sketch
  size_t next_bucket_ = 0;
  FlatColumn<uint64_t> hash_, range_hashes_, pad_rows_;
  FlatColumn<uint8_t> samples_, leading_;
};

}  // namespace convtrace::reader
