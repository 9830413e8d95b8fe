#include "tools/diff/model/sequence_align.h"

#include <algorithm>
#include <limits>

namespace convtrace::diff {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// The last element of the best alignment up to a cell: a pair, or a gap in one sequence.
enum State : uint8_t { kPair, kOnlyA, kOnlyB };

struct Cell {
  float pair = kNever, only_a = kNever, only_b = kNever;

  [[nodiscard]] float best() const { return std::max({pair, only_a, only_b}); }
  /// In a tie the pair wins.
  [[nodiscard]] State best_state() const {
    if (pair >= only_a && pair >= only_b) return kPair;
    return only_a >= only_b ? kOnlyA : kOnlyB;
  }
};

/// For each cell and each of its three states, the state before it.
class Trail {
 public:
  Trail(size_t rows, size_t columns) : columns_(columns), moves_(rows * columns) {}
  void set(size_t row, size_t column, State state, State before) {
    moves_[row * columns_ + column] |= static_cast<uint8_t>(before << (2 * state));
  }
  [[nodiscard]] State before(size_t row, size_t column, State state) const {
    return static_cast<State>(moves_[row * columns_ + column] >> (2 * state) & 3);
  }

 private:
  size_t columns_;
  std::vector<uint8_t> moves_;
};

/// The best score of a gap after `before`: extending a gap costs less than opening one.
float gap_after(const Cell& before, State gap, State& from) {
  const float going_on = (gap == kOnlyA ? before.only_a : before.only_b) - kGapExtend;
  const float opened = before.best() - kGapOpen;
  from = opened >= going_on ? before.best_state() : gap;
  return std::max(opened, going_on);
}

}  // namespace

std::vector<std::pair<uint32_t, uint32_t>> align_sequences(size_t a_count, size_t b_count,
                                                           bool exchange, const PairScore& score,
                                                           size_t max_cells) {
  if (exchange) {
    auto pairs = align_sequences(
        b_count, a_count, false, [&](size_t b, size_t a) { return score(a, b); }, max_cells);
    for (auto& [b, a] : pairs) std::swap(a, b);
    return pairs;
  }
  if (a_count == 0 || b_count == 0 || (a_count + 1) > max_cells / (b_count + 1)) return {};
  Trail trail(a_count + 1, b_count + 1);
  std::vector<Cell> above(b_count + 1), row(b_count + 1);
  for (size_t i = 0; i <= a_count; ++i) {
    for (size_t j = 0; j <= b_count; ++j) {
      Cell cell;
      State from = kPair;
      if (i == 0 && j == 0) cell.pair = 0;
      if (i > 0) {
        cell.only_a = gap_after(above[j], kOnlyA, from);
        trail.set(i, j, kOnlyA, from);
      }
      if (j > 0) {
        cell.only_b = gap_after(row[j - 1], kOnlyB, from);
        trail.set(i, j, kOnlyB, from);
      }
      const float fit = i > 0 && j > 0 ? score(i - 1, j - 1) : 0;
      if (fit > 0) {
        cell.pair = above[j - 1].best() + fit;
        trail.set(i, j, kPair, above[j - 1].best_state());
      }
      row[j] = cell;
    }
    std::swap(above, row);
  }
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  State state = above[b_count].best_state();
  for (size_t i = a_count, j = b_count; i > 0 || j > 0;) {
    const State before = trail.before(i, j, state);
    if (state != kOnlyB) --i;
    if (state != kOnlyA) --j;
    if (state == kPair) pairs.emplace_back(static_cast<uint32_t>(i), static_cast<uint32_t>(j));
    state = before;
  }
  std::ranges::reverse(pairs);
  return pairs;
}

}  // namespace convtrace::diff
