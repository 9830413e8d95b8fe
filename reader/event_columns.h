#pragma once
/// @file event_columns.h
/// Typed views of a verified chunk's columns, checked to have one row per event.
///
/// Place:    private to event_decoder.cpp; the only reader header that knows the generated schema
/// code. Why:      a column that is absent reads as zeros (an older writer did not have it, or all
/// rows were
///           dropped as defaults); one of another length is damage, found once here instead of at
///           each access.
/// Lifetime: views borrow the chunk's payload.
/// Source:   format/FORMAT.md section 6.

#include <cstdint>
#include <span>

#include "format/events.h"
#include "format/schema/chunk_generated.h"

namespace convtrace::reader {

namespace wire = format::wire;

/// The FlatBuffers verifier checks that a vector lies inside the buffer, not that its elements are
/// aligned.
template <typename T>
[[nodiscard]] bool is_aligned(const flatbuffers::Vector<T>* values) {
  return reinterpret_cast<uintptr_t>(values->Data()) % alignof(T) == 0;
}

template <typename T>
class Column {
 public:
  /// @return whether the column fits.
  [[nodiscard]] bool bind(const flatbuffers::Vector<T>* values, size_t rows) {
    values_ = values;
    return values == nullptr || (values->size() == rows && is_aligned(values));
  }
  /// @pre row < the number of rows it was bound to
  [[nodiscard]] T operator[](size_t row) const {
    return values_ != nullptr ? values_->Get(static_cast<flatbuffers::uoffset_t>(row)) : T{};
  }
  [[nodiscard]] size_t size() const { return values_ != nullptr ? values_->size() : 0; }

 private:
  const flatbuffers::Vector<T>* values_ = nullptr;
};

/// Values of all rows one after another; how many belong to a row is in another column.
template <typename T>
class FlatColumn {
 public:
  /// @return whether the column can be read; whether its length fits is for the caller to check.
  [[nodiscard]] bool bind(const flatbuffers::Vector<T>* values) {
    next_ = 0;
    all_ = {};
    if (values == nullptr) return true;
    if (!is_aligned(values)) return false;
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

struct PlaceRows {
  Column<uint32_t> scope, call;
  Column<uint8_t> phase;
};

struct LaunchRows {
  PlaceRows place;
  Column<uint32_t> kernel, grid[3], block[3], shared_bytes;
  Column<uint64_t> stream;
  Column<uint8_t> device, sampled;
  Column<uint16_t> operand_count, operand_param, operand_word;
  Column<uint8_t> operand_confidence;
  Column<uint64_t> operand_address, operand_generation, operand_offset;
  size_t next_operand = 0;
  [[nodiscard]] bool bind(const wire::LaunchColumns* table, size_t rows);
};

struct ValueRows {
  Column<uint64_t> finite, nan, pos_inf, neg_inf, pos_zero, neg_zero, positive, negative, subnormal,
      saturated, min, max, amax, amin_nonzero, sum_lo, sum_hi, l1_lo, l1_hi;
  Column<double> l2, mean, deviation;
  size_t next = 0;
  [[nodiscard]] bool bind(const wire::StatsValues* table, size_t rows);
};

struct StatsRows {
  PlaceRows place;
  Column<uint32_t> slot, op, kernel;
  Column<uint8_t> device_type, device_index, dtype, extent, capture;
  Column<uint64_t> storage, storage_offset, generation, address, bytes, count, hash;
  Column<uint32_t> version, variant, sample_bytes, leading_bytes;
  Column<uint8_t> rank;
  Column<uint16_t> range_count;
  FlatColumn<uint64_t> shape, range_hashes;
  FlatColumn<uint8_t> samples, leading;
  ValueRows values;
  [[nodiscard]] bool bind(const wire::StatsColumns* table, size_t rows);
};

struct MemoryRows {
  Column<uint64_t> address, bytes, generation, stream;
  Column<uint8_t> source, device_type, device_index;
  Column<uint32_t> stack;
  [[nodiscard]] bool bind(const wire::MemoryColumns* table, size_t rows);
};

struct CopyRows {
  Column<uint8_t> kind;
  Column<uint64_t> destination, source, bytes, stream;
  [[nodiscard]] bool bind(const wire::CopyColumns* table, size_t rows);
};

struct ScopeRows {
  PlaceRows place;
  Column<uint8_t> enter;
  [[nodiscard]] bool bind(const wire::ScopeColumns* table, size_t rows);
};

struct StepRows {
  Column<uint32_t> index;
  [[nodiscard]] bool bind(const wire::StepColumns* table, size_t rows);
};

}  // namespace convtrace::reader
