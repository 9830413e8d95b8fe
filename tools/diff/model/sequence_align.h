#pragma once
/// @file sequence_align.h
/// Aligns two sequences as a text diff does, but by a score for each pair of elements.
///
/// Threads:  pure functions.
/// Memory:   one byte per cell of the table, at most kMaxCells.
/// Source:   Gotoh 1982, global alignment with affine gaps: one long insertion costs less than many
///           short ones, because a layer is inserted as a whole.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace convtrace::diff {

inline constexpr float kGapOpen = 1, kGapExtend = 0.125F;
/// Elements with a score of 0 or less are never paired.
using PairScore = std::function<float(size_t a, size_t b)>;
inline constexpr size_t kMaxCells = size_t{1} << 26;

/// @param exchange  swaps the roles of the sequences. The roles matter if several alignments are
/// equally good; callers assign them so that the result does not depend on which run is the
/// baseline.
/// @return (a, b), ascending in both. Of equally good alignments it returns one that pairs late
/// elements, so that regions of unequal length are joined at their ends. Empty if the table would
/// be too large.
[[nodiscard]] std::vector<std::pair<uint32_t, uint32_t>> align_sequences(
    size_t a_count, size_t b_count, bool exchange, const PairScore& score,
    size_t max_cells = kMaxCells);

}  // namespace convtrace::diff
