#include "format/file/columns/launch_columns.h"

#include <algorithm>

namespace convtrace::format {
namespace {

uint64_t shape_of(const Operand& o) {
  return o.param | uint64_t{o.word} << 16 | static_cast<uint64_t>(o.confidence) << 32;
}

}  // namespace

LaunchColumns::Head LaunchColumns::head_of(const Launch& e) {
  const uint32_t bytes = static_cast<uint32_t>(e.place.phase) | uint32_t{e.device} << 8 |
                         static_cast<uint32_t>(e.sampled) << 16;
  return {pair(e.place.scope.value, e.place.call),
          pair(e.kernel.value, bytes),
          pair(e.grid[0], e.grid[1]),
          pair(e.grid[2], e.block[0]),
          pair(e.block[1], e.block[2]),
          pair(e.shared_bytes, static_cast<uint32_t>(e.operands.size())),
          e.stream};
}

bool LaunchColumns::same(size_t row, const Head& head, std::span<const Operand> operands) const {
  if (!equal(heads_[rows_.signature(row)], head)) return false;
  const Pointer* pointer = pointers_.data() + launches_[row].first_pointer;
  uint64_t difference = 0;
  for (const Operand& o : operands) difference |= (pointer++->shape & ~kMoved) ^ shape_of(o);
  return difference == 0;
}

void LaunchColumns::put_signature(const Launch& e) {
  const auto words = Words<Launch>(e).fixed;
  for (size_t i = 0; i < words.size(); ++i) fixed_[i].put(rows_.signature_count() - 1, words[i]);
  for (const Operand& o : e.operands) {
    param_.put(signature_operands_, o.param);
    word_.put(signature_operands_, o.word);
    confidence_.put(signature_operands_++, static_cast<uint64_t>(o.confidence));
  }
}

uint32_t LaunchColumns::put(const Launch& e, uint64_t newest) {
  const Head head = head_of(e);
  const size_t row = launches_.size();
  const size_t back = rows_.add(
      [&] {
        uint64_t hash = checksum64(std::as_bytes(std::span(head)));
        for (const Operand& o : e.operands) hash = hash * 0x9E3779B97F4A7C15 + shape_of(o);
        return hash >> 32;
      },
      [&](size_t other) { return same(other, head, e.operands); });
  back_.put(row, back);
  if (back == 0) {
    heads_.push_back(head);
    put_signature(e);
  }
  launches_.push_back({newest, static_cast<uint32_t>(pointer_count_)});
  put_pointers(e.operands, back);
  return rows_.signature(row);
}

void LaunchColumns::put_pointers(std::span<const Operand> operands, size_t back) {
  const size_t needed = pointer_count_ + operands.size();
  if (needed > pointers_.size()) pointers_.resize(std::max(needed, 2 * pointers_.size()));
  Pointer* to = pointers_.data() + pointer_count_;
  if (back == 0) {  // similar to itself, but without addresses
    std::ranges::transform(operands, to, [](const Operand& o) { return Pointer{shape_of(o)}; });
  }
  const Row& then = launches_[launches_.size() - 1 - back];
  const uint64_t aged = launches_.back().newest - then.newest;
  const uint64_t moves = back == 0 ? 0 : kMoved;
  const Pointer* like = pointers_.data() + then.first_pointer;
  for (const Operand& o : operands) {
    // Half of the operands move, so a branch on it would often be mispredicted.
    const uint64_t generation = like->generation + (aged & (0 - (like->shape / kMoved)));
    const bool as_expected =
        o.address == like->address && o.generation == generation && o.offset == like->offset;
    if (!as_expected) {
      const auto row = static_cast<size_t>(to - pointers_.data());
      address_.put(row, wire::zigzag(o.address - like->address));
      generation_.put(row, wire::zigzag(o.generation - generation));
      offset_.put(row, wire::zigzag(o.offset - like->offset));
    }
    const uint64_t moved = o.generation != like->generation ? moves : 0;
    *to++ = {(like++->shape & ~kMoved) | moved, o.address, o.generation, o.offset};
  }
  pointer_count_ = needed;
}

size_t LaunchColumns::packed_bytes() const {
  size_t sum = back_.column().packed_bytes(launches_.size());
  for (const PackedColumn& column : fixed_) sum += column.packed_bytes(rows_.signature_count());
  for (const PackedColumn* column : {&param_, &word_, &confidence_})
    sum += column->packed_bytes(signature_operands_);
  for (const PackedColumn* column : {&address_, &generation_, &offset_})
    sum += column->packed_bytes(pointer_count_);
  return sum;
}

TableWriter::Offset LaunchColumns::write(flatbuffers::FlatBufferBuilder& builder) const {
  if (launches_.empty()) return {};
  TableWriter to(builder);
  size_t id = 0;
  to.vector(id++, back_.column().pack(launches_.size()));
  for (const PackedColumn& column : fixed_) to.vector(id++, column.pack(rows_.signature_count()));
  for (const PackedColumn* column : {&param_, &word_, &confidence_})
    to.vector(id++, column->pack(signature_operands_));
  for (const PackedColumn* column : {&address_, &generation_, &offset_})
    to.vector(id++, column->pack(pointer_count_));
  return to.finish();
}

void LaunchColumns::clear() {
  rows_.clear();
  back_.clear();
  for (PackedColumn& column : fixed_) column.clear();
  for (PackedColumn* column : {&param_, &word_, &confidence_, &address_, &generation_, &offset_})
    column->clear();
  signature_operands_ = 0;
  heads_.clear();
  launches_.clear();
  pointer_count_ = 0;
}

}  // namespace convtrace::format
