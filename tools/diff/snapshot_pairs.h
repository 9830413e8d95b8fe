#pragma once
/// @file snapshot_pairs.h
/// Compares stored values of two traces, where both traces hold the bytes.
///
/// Memory:   both values, up to kMaxValueBytes of each; of larger ones the beginning is compared.
/// Errors:   none: what cannot be read is as if it had not been stored.

#include <memory>

#include "reader/snapshots.h"
#include "reader/trace_reader.h"
#include "tools/diff/result.h"

namespace convtrace::diff {

inline constexpr size_t kMaxValueBytes = size_t{64} << 20;

class SnapshotPairs {
 public:
  /// @param base, @param cand  outlive this.
  SnapshotPairs(const reader::TraceReader& base, const reader::TraceReader& cand);

  /// Fills in `elements` of every value of the root that both traces stored.
  void compare(RootReport& root);

 private:
  void compare(RecordReport& record);
  static std::vector<std::byte> read(reader::Snapshots& from, const SideReport& side);

  reader::Snapshots base_, cand_;
};

}  // namespace convtrace::diff
