#include "reader/columns/launch_rows.h"

#include "format/file/layout.h"

namespace convtrace::reader {

using namespace format;

bool LaunchRows::bind(const wire::LaunchColumns* table, std::span<const uint64_t> newest) {
  row_ = 0;
  if (table == nullptr) return newest.empty();
  return rows_.bind(table->back(), newest.size()) && bind_signatures(*table) && count_operands() &&
         bind_shapes(*table) && bind_operands(*table, newest);
}

bool LaunchRows::bind_signatures(const wire::LaunchColumns& t) {
  signatures_.clear();
  return each_signature<Launch>(t, rows_.signature_count(), [this](const auto& row) {
    Signature& made = signatures_.emplace_back();
    made.known = set_fixed(made.event, row);
    made.operand_count = static_cast<uint32_t>(fixed_at<Launch, 15>(row));
  });
}

bool LaunchRows::count_operands() {
  // Operands that repeat an earlier launch take no bytes, so their number needs a limit of its own.
  size_t total = 0;
  first_operands_.resize(rows_.row_count() + 1);
  for (size_t row = 0; row < rows_.row_count(); ++row) {
    first_operands_[row] = static_cast<uint32_t>(total);
    total += signatures_[rows_.signature(row)].operand_count;
    if (total > kMaxChunkOperands) return false;
  }
  first_operands_.back() = static_cast<uint32_t>(total);
  if (operands_.size() < total) {
    operands_.resize(total);
    moved_.resize(total);
  }
  return true;
}

bool LaunchRows::bind_shapes(const wire::LaunchColumns& t) {
  size_t shapes = 0;
  for (Signature& signature : signatures_) {
    if (signature.operand_count > kMaxOperands) return false;
    signature.first_shape = shapes;
    shapes += signature.operand_count;
  }
  shapes_.clear();
  const std::array columns = {StoredColumn{t.operand_param(), 2}, StoredColumn{t.operand_word(), 2},
                              StoredColumn{t.operand_confidence(), 1}};
  std::vector<size_t> unknown;
  const bool fits = each_row(columns, shapes, [&](const auto& v) {
    Operand& operand = shapes_.emplace_back();
    Enums enums;
    operand.param = static_cast<uint16_t>(v[0]);
    operand.word = static_cast<uint16_t>(v[1]);
    enums.set(operand.confidence, v[2]);
    if (!enums.known) unknown.push_back(shapes_.size() - 1);
  });
  if (!fits) return false;
  for (const size_t shape : unknown) {
    // The last signature that begins at or before it.
    const auto behind = std::ranges::upper_bound(signatures_, shape, {}, &Signature::first_shape);
    std::prev(behind)->known = false;
  }
  return true;
}

bool LaunchRows::bind_operands(const wire::LaunchColumns& t, std::span<const uint64_t> newest) {
  const size_t total = first_operands_.back();
  const bool fits = address_.bind(t.operand_address(), total) &&
                    generation_.bind(t.operand_generation(), total) &&
                    offset_.bind(t.operand_offset(), total);
  if (!fits) return false;
  for (size_t row = 0, end; row < rows_.row_count(); row = end) {
    const size_t like = rows_.like(row);
    end = end_of_run(row, newest);
    if (like == row) {
      copy_shapes(row, end);
    } else {
      repeat_operands(row, end, like, newest[row] - newest[like]);
    }
    apply_differences(first_operands_[end], first_operands_[row] - first_operands_[like]);
  }
  return true;
}

/// @return the end of a run from `row` on in which every launch begins a signature, or every launch
/// is similar to a launch before `row`, these are consecutive, and their memory is older by the
/// same number of generations. A program that repeats its steps has few and long runs.
size_t LaunchRows::end_of_run(size_t row, std::span<const uint64_t> newest) const {
  const size_t distance = row - rows_.like(row);
  const uint64_t aged = newest[row] - newest[row - distance];
  const size_t most = distance == 0 ? rows_.row_count() : row + distance;
  const size_t end = std::min(rows_.row_count(), most);
  const auto goes_on = [&](size_t i) {
    return i - rows_.like(i) == distance && newest[i] - newest[i - distance] == aged;
  };
  do ++row;
  while (row < end && goes_on(row));
  return row;
}

/// For launches that begin signatures, which are consecutive.
void LaunchRows::copy_shapes(size_t row, size_t end) {
  const size_t begin = first_operands_[row], count = first_operands_[end] - begin;
  const size_t first_shape = signatures_[rows_.signature(row)].first_shape;
  std::copy_n(shapes_.data() + first_shape, count, operands_.data() + begin);
  std::fill_n(moved_.data() + begin, count, uint8_t{0});
}

/// Copies the operands of the launches from `like` on. Operands whose memory is allocated anew each
/// time are predicted to have the same age.
void LaunchRows::repeat_operands(size_t row, size_t end, size_t like, uint64_t aged) {
  const size_t begin = first_operands_[row], count = first_operands_[end] - begin;
  const Operand* const from = operands_.data() + first_operands_[like];
  const uint8_t* const moved_from = moved_.data() + first_operands_[like];
  Operand* const to = operands_.data() + begin;
  uint8_t* const moved_to = moved_.data() + begin;
  for (size_t i = 0; i < count; ++i) {
    Operand operand = from[i];
    operand.generation += aged & (0 - uint64_t{moved_from[i]});
    to[i] = operand;
  }
  aged != 0 ? std::copy_n(moved_from, count, moved_to) : std::fill_n(moved_to, count, uint8_t{0});
}

/// Adds the stored differences of operands before `end`, each of which was copied from `distance`
/// before.
void LaunchRows::apply_differences(size_t end, size_t distance) {
  address_.take_before(end, [this](size_t i, uint64_t difference) {
    operands_[i].address += wire::unzigzag(difference);
  });
  offset_.take_before(end, [this](size_t i, uint64_t difference) {
    operands_[i].offset += wire::unzigzag(difference);
  });
  generation_.take_before(end, [this, distance](size_t i, uint64_t difference) {
    operands_[i].generation += wire::unzigzag(difference);
    // Not in the first launch of a signature, whose distance is 0.
    moved_[i] = operands_[i].generation != operands_[i - distance].generation ? 1 : 0;
  });
}

}  // namespace convtrace::reader
