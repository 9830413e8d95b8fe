#pragma once
/// @file snapshot_pairs.h
/// Compares stored values of two traces, where both traces hold the bytes.
///
/// Threads:  one owner thread.
/// Memory:   both values, up to kMaxValueBytes of each; of larger ones the beginning is compared.
///           A list of a trace's stored parts, from the first question on.
/// Errors:   none: what cannot be read is as if it had not been stored.

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

  /// @return how the elements of two values of one type and size differ, whose hashes do; nullopt
  /// where not both are stored.
  [[nodiscard]] std::optional<ElementReport> compare(const ValueRecord& base,
                                                     const ValueRecord& cand);

  /// Fills in `elements` of every value of the root that both traces stored.
  void compare(RootReport& root);

 private:
  /// A trace, and where its stored values are.
  class Side {
   public:
    explicit Side(const reader::TraceReader& trace) : trace_(trace) {}
    /// @return the beginning of a value; empty: it cannot be read.
    std::vector<std::byte> read(const format::ContentId& content);

   private:
    const reader::TraceReader& trace_;
    std::optional<reader::Snapshots> snapshots_;
  };
  /// `Value` has the fields `stats`, `dtype`, `bytes` and `capture`.
  template <typename Value>
  std::optional<ElementReport> compare_values(const Value& base, const Value& cand);

  Side base_, cand_;
};

}  // namespace convtrace::diff
