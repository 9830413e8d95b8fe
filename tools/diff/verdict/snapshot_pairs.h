#pragma once
/// @file snapshot_pairs.h
/// Compares stored values, where both traces have the bytes.
///
/// Threads:  one owner thread.
/// Memory:   both values, up to kMaxValueBytes of each; of larger values the beginning is compared.
///           A list of each trace's stored parts, from the first call on.
/// Errors:   none: a value that cannot be read counts as not stored.

#include <optional>

#include "reader/snapshots.h"
#include "reader/trace_reader.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

inline constexpr size_t kMaxValueBytes = size_t{64} << 20;

class SnapshotPairs {
 public:
  /// @param base, @param cand  outlive this.
  SnapshotPairs(const reader::TraceReader& base, const reader::TraceReader& cand)
      : base_(base), cand_(cand) {}

  /// @return how the elements of two values with one type, one size and different hashes differ;
  /// nullopt unless both are stored.
  [[nodiscard]] std::optional<ElementReport> compare(const ValueRecord& base,
                                                     const ValueRecord& cand);

  /// Fills in `elements` for every value of the root that both traces stored, with histograms for
  /// those whose numbers are shown.
  void compare(RootReport& root);

 private:
  /// A trace, with the places of its stored values.
  class Side {
   public:
    explicit Side(const reader::TraceReader& trace) : trace_(trace) {}
    /// @return the beginning of a value; empty if it cannot be read.
    std::vector<std::byte> read(const format::ContentId& content);

   private:
    const reader::TraceReader& trace_;
    std::optional<reader::Snapshots> snapshots_;
  };
  /// `Value` has the fields `stats`, `dtype`, `bytes` and `capture`.
  template <typename Value>
  std::optional<ElementReport> compare_values(const Value& base, const Value& cand,
                                              bool with_histogram = false);

  Side base_, cand_;
};

}  // namespace convtrace::diff
