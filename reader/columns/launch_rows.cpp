#include "reader/columns/launch_rows.h"

#include <algorithm>

#include "format/layout.h"
#include "reader/columns/enums.h"

namespace convtrace::reader {

using namespace format;

bool LaunchRows::bind(const wire::LaunchColumns* table, size_t row_count) {
  row_ = next_operand_ = 0;
  if (table == nullptr) return row_count == 0;
  return rows_.bind(table->back(), row_count) && bind_signatures(*table) && bind_operands(*table);
}

bool LaunchRows::bind_signatures(const wire::LaunchColumns& t) {
  signatures_.clear();
  const FixedColumn columns[] = {{t.scope(), 4},   {t.call(), 4},         {t.phase(), 1},
                                 {t.kernel(), 4},  {t.grid_x(), 4},       {t.grid_y(), 4},
                                 {t.grid_z(), 4},  {t.block_x(), 4},      {t.block_y(), 4},
                                 {t.block_z(), 4}, {t.shared_bytes(), 4}, {t.stream(), 8},
                                 {t.device(), 1},  {t.sampled(), 1},      {t.operand_count(), 2}};
  return each_row(columns, rows_.signature_count(), [this](const auto& v) {
    const auto u32 = [&v](size_t i) { return static_cast<uint32_t>(v[i]); };
    Signature& made = signatures_.emplace_back();
    Launch& e = made.event;
    Enums enums;
    e.place.scope = {u32(0)};
    e.place.call = u32(1);
    enums.set(e.place.phase, v[2]);
    e.kernel = {u32(3)};
    for (size_t axis = 0; axis < 3; ++axis) {
      e.grid[axis] = u32(4 + axis);
      e.block[axis] = u32(7 + axis);
    }
    e.shared_bytes = u32(10);
    e.stream = v[11];
    e.device = static_cast<uint8_t>(v[12]);
    enums.set(e.sampled, v[13]);
    made.operand_count = u32(14);
    made.known = enums.known;
  });
}

bool LaunchRows::bind_operands(const wire::LaunchColumns& t) {
  // Operands that repeat an earlier launch take no bytes, so their number is bounded by a limit.
  size_t total = 0;
  launches_.resize(rows_.row_count());
  for (size_t row = 0; row < rows_.row_count(); ++row) {
    launches_[row] = {static_cast<uint32_t>(total), 0};
    total += signatures_[rows_.signature(row)].operand_count;
    if (total > kMaxChunkOperands) return false;
  }
  if (operands_.size() < total) operands_.resize(total);
  moved_.assign(total, 0);
  size_t shapes = 0;
  for (Signature& signature : signatures_) {
    if (signature.operand_count > kMaxOperands) return false;
    signature.first_shape = shapes;
    shapes += signature.operand_count;
  }
  shapes_.clear();
  const FixedColumn columns[] = {
      {t.operand_param(), 2}, {t.operand_word(), 2}, {t.operand_confidence(), 1}};
  std::vector<bool> known;
  const bool fits = each_row(columns, shapes, [&](const auto& v) {
    Operand& operand = shapes_.emplace_back();
    Enums enums;
    operand.param = static_cast<uint16_t>(v[0]);
    operand.word = static_cast<uint16_t>(v[1]);
    enums.set(operand.confidence, v[2]);
    known.push_back(enums.known);
  });
  if (!fits) return false;
  for (Signature& signature : signatures_) {
    for (size_t i = 0; i < signature.operand_count; ++i) {
      signature.known = signature.known && known[signature.first_shape + i];
    }
  }
  return address_.bind(t.operand_address(), total) &&
         generation_.bind(t.operand_generation(), total) && offset_.bind(t.operand_offset(), total);
}

bool LaunchRows::next(Launch& event, uint64_t newest) {
  const size_t row = row_++;
  const uint32_t like_row = rows_.like(row);
  const Signature& signature = signatures_[rows_.signature(row)];
  const size_t begin = next_operand_, end = begin + signature.operand_count;
  launches_[row].newest = newest;
  if (like_row == row) {
    std::copy_n(shapes_.data() + signature.first_shape, end - begin, operands_.data() + begin);
  } else {
    age_operands(begin, end, launches_[like_row], newest);
  }
  apply(address_, &Operand::address, end);
  apply(generation_, &Operand::generation, end);
  apply(offset_, &Operand::offset, end);
  if (like_row != row) {
    const Operand* like = operands_.data() + launches_[like_row].first_operand;
    for (size_t i = begin; i < end; ++i, ++like) {
      moved_[i] = operands_[i].generation != like->generation;
    }
  }
  next_operand_ = end;
  event = signature.event;
  event.operands = std::span(operands_.data() + begin, end - begin);
  return signature.known;
}

/// Copies the operands of the like launch; those whose memory is allocated anew each time are
/// expected to be as old as they were.
void LaunchRows::age_operands(size_t begin, size_t end, const Row& like_row, uint64_t newest) {
  const Operand* like = operands_.data() + like_row.first_operand;
  const uint8_t* moved = moved_.data() + like_row.first_operand;
  const uint64_t aged = newest - like_row.newest;
  for (size_t i = begin; i < end; ++i) {
    operands_[i] = *like++;
    operands_[i].generation += *moved++ != 0 ? aged : 0;
  }
}

/// Adds the differences that are stored for operands before `end`.
void LaunchRows::apply(PackedColumn& column, uint64_t Operand::*field, size_t end) {
  while (column.next_row() < end) {
    uint64_t& value = operands_[column.next_row()].*field;
    value += wire::unzigzag(column.take());
  }
}

}  // namespace convtrace::reader
