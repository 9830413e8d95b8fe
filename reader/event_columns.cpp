#include "reader/event_columns.h"

#include "format/schema/conventions.h"

namespace convtrace::reader {
namespace {

template <typename Table>
bool bind_place(PlaceRows& place, const Table& from, size_t rows) {
  return place.scope.bind(from.scope(), rows) && place.call.bind(from.call(), rows) &&
         place.phase.bind(from.phase(), rows);
}

template <typename T>
size_t total(const Column<T>& counts) {
  size_t sum = 0;
  for (size_t row = 0; row < counts.size(); ++row) sum += counts[row];
  return sum;
}

size_t rows_with_values(const Column<uint8_t>& capture, size_t rows) {
  size_t count = 0;
  for (size_t row = 0; row < rows; ++row) {
    count += capture[row] != static_cast<uint8_t>(format::Capture::kHash);
  }
  return count;
}

/// @return the dimensions of all shapes, or nothing when a rank is not possible.
std::optional<size_t> total_dims(const Column<uint8_t>& ranks) {
  size_t sum = 0;
  for (size_t row = 0; row < ranks.size(); ++row) {
    if (ranks[row] == wire::kRankUnknown) continue;
    if (ranks[row] > format::kMaxDims) return std::nullopt;
    sum += ranks[row];
  }
  return sum;
}

bool ranges_fit(const Column<uint16_t>& counts) {
  for (size_t row = 0; row < counts.size(); ++row) {
    if (counts[row] > format::kMaxRanges) return false;
  }
  return true;
}

}  // namespace

bool LaunchRows::bind(const wire::LaunchColumns* t, size_t rows) {
  if (t == nullptr) return rows == 0;
  next_operand = 0;
  const bool fits = bind_place(place, *t, rows) && kernel.bind(t->kernel(), rows) &&
                    grid[0].bind(t->grid_x(), rows) && grid[1].bind(t->grid_y(), rows) &&
                    grid[2].bind(t->grid_z(), rows) && block[0].bind(t->block_x(), rows) &&
                    block[1].bind(t->block_y(), rows) && block[2].bind(t->block_z(), rows) &&
                    shared_bytes.bind(t->shared_bytes(), rows) && stream.bind(t->stream(), rows) &&
                    device.bind(t->device(), rows) && sampled.bind(t->sampled(), rows) &&
                    operand_count.bind(t->operand_count(), rows);
  if (!fits) return false;
  const size_t operands = total(operand_count);
  return operand_param.bind(t->operand_param(), operands) &&
         operand_word.bind(t->operand_word(), operands) &&
         operand_confidence.bind(t->operand_confidence(), operands) &&
         operand_address.bind(t->operand_address(), operands) &&
         operand_generation.bind(t->operand_generation(), operands) &&
         operand_offset.bind(t->operand_offset(), operands);
}

bool ValueRows::bind(const wire::StatsValues* t, size_t rows) {
  if (t == nullptr) return rows == 0;
  next = 0;
  return finite.bind(t->finite(), rows) && nan.bind(t->nan(), rows) &&
         pos_inf.bind(t->pos_inf(), rows) && neg_inf.bind(t->neg_inf(), rows) &&
         pos_zero.bind(t->pos_zero(), rows) && neg_zero.bind(t->neg_zero(), rows) &&
         positive.bind(t->positive(), rows) && negative.bind(t->negative(), rows) &&
         subnormal.bind(t->subnormal(), rows) && saturated.bind(t->saturated(), rows) &&
         min.bind(t->min(), rows) && max.bind(t->max(), rows) && amax.bind(t->amax(), rows) &&
         amin_nonzero.bind(t->amin_nonzero(), rows) && sum_lo.bind(t->sum_lo(), rows) &&
         sum_hi.bind(t->sum_hi(), rows) && l1_lo.bind(t->l1_lo(), rows) &&
         l1_hi.bind(t->l1_hi(), rows) && l2.bind(t->l2(), rows) && mean.bind(t->mean(), rows) &&
         deviation.bind(t->deviation(), rows);
}

bool StatsRows::bind(const wire::StatsColumns* t, size_t rows) {
  if (t == nullptr) return rows == 0;
  const bool fits =
      bind_place(place, *t, rows) && slot.bind(t->slot(), rows) && op.bind(t->op(), rows) &&
      kernel.bind(t->kernel(), rows) && device_type.bind(t->device_type(), rows) &&
      device_index.bind(t->device_index(), rows) && dtype.bind(t->dtype(), rows) &&
      extent.bind(t->extent(), rows) && capture.bind(t->capture(), rows) &&
      storage.bind(t->storage(), rows) && storage_offset.bind(t->storage_offset(), rows) &&
      generation.bind(t->generation(), rows) && version.bind(t->version(), rows) &&
      address.bind(t->address(), rows) && bytes.bind(t->bytes(), rows) &&
      rank.bind(t->rank(), rows) && count.bind(t->count(), rows) && hash.bind(t->hash(), rows) &&
      variant.bind(t->variant(), rows) && range_count.bind(t->range_count(), rows) &&
      sample_bytes.bind(t->sample_bytes(), rows) && leading_bytes.bind(t->leading_bytes(), rows);
  const bool readable = shape.bind(t->shape()) && range_hashes.bind(t->range_hashes()) &&
                        samples.bind(t->samples()) && leading.bind(t->leading());
  if (!fits || !readable || !ranges_fit(range_count)) return false;
  return total_dims(rank) == shape.size() && total(range_count) == range_hashes.size() &&
         total(sample_bytes) == samples.size() && total(leading_bytes) == leading.size() &&
         values.bind(t->values(), rows_with_values(capture, rows));
}

bool MemoryRows::bind(const wire::MemoryColumns* t, size_t rows) {
  if (t == nullptr) return rows == 0;
  return address.bind(t->address(), rows) && bytes.bind(t->bytes(), rows) &&
         generation.bind(t->generation(), rows) && source.bind(t->source(), rows) &&
         device_type.bind(t->device_type(), rows) && device_index.bind(t->device_index(), rows) &&
         stream.bind(t->stream(), rows) && stack.bind(t->stack(), rows);
}

bool CopyRows::bind(const wire::CopyColumns* t, size_t rows) {
  if (t == nullptr) return rows == 0;
  return kind.bind(t->kind(), rows) && destination.bind(t->destination(), rows) &&
         source.bind(t->source(), rows) && bytes.bind(t->bytes(), rows) &&
         stream.bind(t->stream(), rows);
}

bool ScopeRows::bind(const wire::ScopeColumns* t, size_t rows) {
  if (t == nullptr) return rows == 0;
  return bind_place(place, *t, rows) && enter.bind(t->enter(), rows);
}

bool StepRows::bind(const wire::StepColumns* t, size_t rows) {
  if (t == nullptr) return rows == 0;
  return index.bind(t->index(), rows);
}

}  // namespace convtrace::reader
