#pragma once
/// @file row_columns.h
/// Collects the rows of one kind of event: a repeated part is stored once a chunk, the rest as the
/// difference to an earlier, similar row.
///
/// Place:    the columns of format/file/columns/; reader/columns/row_table.h is its mirror.
/// Why:      a training program repeats itself step by step. A row refers to the row before it with
///           the same fixed part (for a launch: kernel, grid, place, operand shape), if there is
///           one. Pointers, generations and statistics are predicted to be equal to those of that
///           row.
/// Threads:  one owner thread.
/// Source:   format/FORMAT.md section 6.2.

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "format/base/checksum.h"
#include "format/file/columns/packed_column.h"
#include "format/file/columns/table_writer.h"
#include "format/model/fields.h"
#include "format/schema/conventions.h"

namespace convtrace::format {

/// For each row, finds an earlier row with an equal fixed part, and shares its signature.
class LikeRows {
 public:
  /// Adds a row.
  /// @param hash  computes a hash of the new row's fixed part; called only if one is needed.
  /// @param same  compares the new row's fixed part with that of an earlier row.
  /// @return the distance to the similar row; 0: there is none, and the row gets a new signature.
  template <typename Hash, typename Same>
  size_t add(const Hash& hash, const Same& same) {
    const auto row = static_cast<uint32_t>(signature_of_.size());
    // The row after the last similar row is usually similar to this one: then no search is needed.
    if (expected_ < row && same(expected_)) return join(expected_);
    if (slots_.empty()) slots_.resize(kSlots);
    uint32_t& slot = slots_[hash() % kSlots];
    if (slot != 0 && same(last_row_[slot - 1])) return join(last_row_[slot - 1]);
    signature_of_.push_back(static_cast<uint32_t>(last_row_.size()));
    last_row_.push_back(row);
    slot = static_cast<uint32_t>(last_row_.size());
    return 0;
  }

  [[nodiscard]] size_t row_count() const { return signature_of_.size(); }
  [[nodiscard]] size_t signature_count() const { return last_row_.size(); }
  [[nodiscard]] uint32_t signature(size_t row) const { return signature_of_[row]; }

  void clear() {
    signature_of_.clear();
    last_row_.clear();
    slots_.clear();
    expected_ = 0;
  }

 private:
  static constexpr size_t kSlots = 8192;

  size_t join(size_t like) {
    const size_t row = signature_of_.size();
    signature_of_.push_back(signature_of_[like]);
    last_row_[signature_of_[like]] = static_cast<uint32_t>(row);
    expected_ = like + 1;
    return row - like;
  }

  std::vector<uint32_t> signature_of_;  ///< by row
  std::vector<uint32_t> last_row_;      ///< by signature
  std::vector<uint32_t> slots_;  ///< by hash: signature + 1; a collision overwrites the older one
  size_t expected_ = 0;          ///< the row behind the last row's similar row
};

/// The column of distances to similar rows.
class BackColumn {
 public:
  void put(size_t row, size_t back) {
    column_.put(row, wire::zigzag(back - last_));
    last_ = back;
  }
  [[nodiscard]] const PackedColumn& column() const { return column_; }
  void clear() {
    column_.clear();
    last_ = 0;
  }

 private:
  PackedColumn column_;
  size_t last_ = 0;
};

/// Compares a few words, faster than memcmp (which == becomes) or a loop.
template <size_t N>
bool equal(const std::array<uint64_t, N>& a, const std::array<uint64_t, N>& b) {
  const auto difference = [&]<size_t... I>(std::index_sequence<I...>) {
    return ((a[I] ^ b[I]) | ...);
  };
  return difference(std::make_index_sequence<N>()) == 0;
}

/// @tparam F, V  number of fixed columns, and of columns that store differences.
template <size_t F, size_t V>
class RowColumns {
 public:
  using Fixed = std::array<uint64_t, F>;
  using Varying = std::array<uint64_t, V>;

  /// Adds a row.
  /// @param more  a part of the fixed part that the caller stores.
  /// @return as LikeRows::add.
  size_t put(const Fixed& fixed, const Varying& varying, std::span<const uint64_t> more = {}) {
    const size_t row = rows_.row_count();
    const auto hash = [&] {
      return checksum64(std::as_bytes(std::span(fixed))) ^ checksum64(std::as_bytes(more));
    };
    const auto same = [&](size_t other) {
      const Signature& known = signatures_[rows_.signature(other)];
      return equal(known.fixed, fixed) && std::ranges::equal(known.more, more);
    };
    const size_t back = rows_.add(hash, same);
    back_.put(row, back);
    if (back == 0) {
      const size_t signature = signatures_.size();
      for (size_t i = 0; i < F; ++i) fixed_[i].put(signature, fixed[i]);
      signatures_.push_back({fixed, {more.begin(), more.end()}});
    }
    if constexpr (V > 0) {
      const Varying expected = back == 0 ? Varying{} : history_[row - back];
      for (size_t i = 0; i < V; ++i) varying_[i].put(row, wire::zigzag(varying[i] - expected[i]));
      history_.push_back(varying);
    }
    return back;
  }

  [[nodiscard]] size_t row_count() const { return rows_.row_count(); }
  [[nodiscard]] size_t signature_count() const { return rows_.signature_count(); }

  [[nodiscard]] size_t packed_bytes() const {
    size_t sum = back_.column().packed_bytes(row_count());
    for (const PackedColumn& column : fixed_) sum += column.packed_bytes(signature_count());
    for (const PackedColumn& column : varying_) sum += column.packed_bytes(row_count());
    return sum;
  }

  /// Writes the column `back` and the columns from `begin` on.
  void write(TableWriter& to, const Columns& columns, size_t begin = 0,
             size_t end = Columns::kMost) const {
    if (begin == 0) to.vector(0, back_.column().pack(row_count()));
    for (size_t id = begin; id < std::min(end, columns.ids); ++id) {
      const size_t place = columns.place[id];
      if (columns.is_fixed(id)) to.vector(id, fixed_[place].pack(signature_count()));
      if (columns.is_varying(id)) to.vector(id, varying_[place].pack(row_count()));
    }
  }

  void clear() {
    rows_.clear();
    back_.clear();
    for (PackedColumn& column : fixed_) column.clear();
    for (PackedColumn& column : varying_) column.clear();
    signatures_.clear();
    history_.clear();
  }

 private:
  struct Signature {
    Fixed fixed;
    std::vector<uint64_t> more;
  };
  LikeRows rows_;
  BackColumn back_;
  std::array<PackedColumn, F> fixed_;
  std::array<PackedColumn, V> varying_;
  std::vector<Signature> signatures_;
  std::vector<Varying> history_;
};

}  // namespace convtrace::format
