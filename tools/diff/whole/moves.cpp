#include "tools/diff/whole/moves.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/diff/compare/compare.h"
#include "tools/trace/model/hash_mix.h"

namespace convtrace::diff {

Moves::Piece& Moves::of(const Held& held) {
  return pieces_[mix_all({held.rank, parameter_key(*held.record)})];
}

void Moves::take_gradient(std::span<const Held> pieces) {
  for (const Held& held : pieces) of(held).gradient = held.record->stats.l2;
}

/// If one rank's piece did not change, its update should have been at least a share of the others'
/// updates: the smaller of its share of the gradient and its share of the elements.
void Moves::take(std::span<const Held> pieces, ValueRecord& record) {
  double gradients = 0, elements = 0, of_unmoved = 0, still = 0;
  record.moved = 0;
  const Held* unmoved = nullptr;
  for (const Held& held : pieces) {
    const format::Stats& now = held.record->stats;
    Piece& before = of(held);
    const bool known = now.sketch.is_known() && before.sketch.is_known();
    record.moved = std::hypot(record.moved, known ? sketched_distance(now.sketch, before.sketch)
                                                  : std::numeric_limits<double>::quiet_NaN());
    if (known && now.hash == before.hash) {
      unmoved = &held;
      of_unmoved = before.gradient;
      ++still;
    } else {
      gradients = std::hypot(gradients, before.gradient);
      elements += static_cast<double>(now.count);
    }
    before = {now.sketch, now.hash};
  }
  if (!is_update(record) || still != 1 || elements == 0) return;
  const format::Stats& piece = unmoved->record->stats;
  const double share =
      std::min(of_unmoved / gradients, std::sqrt(static_cast<double>(piece.count) / elements));
  record.held_back = record.moved * share > kLeastMove * unit_roundoff(record.dtype) * piece.l2;
  if (record.held_back) record.odd = {unmoved->rank, std::numeric_limits<double>::infinity(), 0};
}

}  // namespace convtrace::diff
