#include "tools/diff/whole/odd_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tools/common/element.h"

namespace convtrace::diff {
namespace {

using format::Stats;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// By how much a piece has more than any part of the whole can have, relative to the whole.
double excess(const ValueRecord& record, double factor, const Stats& whole) {
  const Stats& piece = record.stats;
  for (uint64_t Stats::*const count : {&Stats::nan, &Stats::pos_inf, &Stats::neg_inf})
    if (piece.*count > whole.*count) return kInfinite;
  const format::DType dtype = record.dtype;
  const auto number = [dtype](format::Scalar scalar) {
    return tools::extreme_as_double(dtype, scalar);
  };
  const auto zeros = [](const Stats& stats) {
    return static_cast<double>(stats.pos_zero + stats.neg_zero);
  };
  const double size = tools::magnitude_as_double(dtype, whole.amax);
  double most = (zeros(piece) - zeros(whole)) / static_cast<double>(piece.count);
  // Not so where a number is not known: NaN.
  for (const auto& [more, scale] : {std::pair(number(piece.max) * factor - number(whole.max), size),
                                    std::pair(number(whole.min) - number(piece.min) * factor, size),
                                    std::pair(piece.l2 * factor - whole.l2, whole.l2)}) {
    if (more > 0) most = std::max(most, scale > 0 ? more / scale : kInfinite);
  }
  return most;
}

}  // namespace

OddRank odd_piece(const std::vector<Held>& pieces, double factor, const Stats& other) {
  OddRank odd;
  for (const Held& piece : pieces) {
    const ValueRecord& record = *piece.record;
    if (!has_statistics(piece) || record.stats.count == 0) continue;
    const double by = excess(record, factor, other);
    if (by > odd.by)
      odd = {piece.rank, by, odd.by};
    else
      odd.next = std::max(odd.next, by);
  }
  return odd;
}

OddRank odd_copy(const HeldValue& value, const HeldValue& partner) {
  std::optional<uint64_t> right;
  if (partner.contents.size() == 1 && value.contents.contains(partner.contents.begin()->first))
    right = partner.contents.begin()->first;
  for (const auto& [content, holders] : value.contents)
    if (!right && holders > 1 && holders + 1 == value.by_rank.size()) right = content;
  if (!right || value.contents.at(*right) + 1 != value.by_rank.size()) return {};
  const auto odd = std::ranges::find_if(
      value.by_rank, [&](const Held& held) { return content_of(held) != *right; });
  return {odd->rank, kInfinite, 0};
}

}  // namespace convtrace::diff
