#include "reader/columns/packed_column.h"

#include <algorithm>

#include "format/schema/conventions.h"

namespace convtrace::reader {
namespace {

constexpr size_t kLanes = 16;
using Lanes [[gnu::vector_size(kLanes)]] = uint8_t;

Lanes load(const uint8_t* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, kLanes);
  return lanes;
}

Lanes interleave_low(Lanes a, Lanes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
Lanes interleave_high(Lanes a, Lanes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}

/// Transposes `count` numbers of kWidth bytes, and a few more: planes[n] has the n-th byte of each,
/// the lowest first; planes from kWidth on are zero.
template <size_t kWidth>
void put_together(const std::array<const uint8_t*, 8>& planes, size_t count, uint64_t* to) {
  for (size_t at = 0; at < count; at += kLanes) {
    std::array<Lanes, 8> bytes{};
#pragma GCC unroll 8
    for (size_t plane = 0; plane < kWidth; ++plane) bytes[plane] = load(planes[plane] + at);
      // The first round puts bytes n and n + 4 of each number side by side, the next bytes 0, 4, 2,
      // 6, and so on.
#pragma GCC unroll 3
    for (size_t turn = 0; turn < 3; ++turn) {
      std::array<Lanes, 8> next;
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) {
        next[2 * i] = interleave_low(bytes[i], bytes[i + 4]);
        next[2 * i + 1] = interleave_high(bytes[i], bytes[i + 4]);
      }
      bytes = next;
    }
    std::memcpy(to + at, bytes.data(), sizeof bytes);
  }
}

/// std::popcount is a function call if the target may lack the instruction.
size_t ones(uint64_t word) {
  word -= word >> 1 & 0x5555555555555555;
  word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
  return ((word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f) * 0x0101010101010101 >> 56;
}

}  // namespace

bool PackedColumn::parse(const PackedBytes& stored, size_t max_width) {
  const uint8_t head = stored[0];
  width_ = head & wire::kPackedWidthMask;
  if (width_ == 0 || width_ > max_width || (head & wire::kPackedReserved) != 0) return false;
  const bool dense = (head & wire::kPackedDense) != 0;
  const size_t bitmap_bytes = dense ? 0 : (row_count_ + 7) / 8;
  const size_t rest = stored.size() - 1;
  if (rest < bitmap_bytes || (rest - bitmap_bytes) % width_ != 0) return false;
  count_ = (rest - bitmap_bytes) / width_;
  planes_ = stored.data() + 1 + bitmap_bytes;
  if (dense) return count_ == row_count_;
  bitmap_ = stored.data() + 1;
  size_t said = 0;
  for (size_t begin = 0; begin < row_count_; begin += kBlock) {
    const uint64_t word = stored_rows(begin);
    const size_t rows = std::min(kBlock, row_count_ - begin);
    if (rows < kBlock && word >> rows != 0) return false;
    said += ones(word);
  }
  return said == count_;
}

bool PackedColumn::bind(const PackedBytes* stored, size_t row_count, size_t max_width) {
  row_count_ = row_count;
  bitmap_ = planes_ = nullptr;
  count_ = next_ = begin_ = block_ = 0;
  word_ = 0;
  row_ = kNone;
  if (stored == nullptr || stored->size() == 0) return true;
  if (!parse(*stored, max_width)) {
    row_count_ = count_ = 0;
    return false;
  }
  if (count_ == 0) return true;
  word_ = stored_rows(0);
  unpack(0, values_);
  find_row();
  return true;
}

uint64_t PackedColumn::last_stored_rows(size_t begin) const {
  const size_t rows = row_count_ - begin;
  if (bitmap_ == nullptr) return UINT64_MAX >> (kBlock - rows);
  uint64_t word = 0;
  std::memcpy(&word, bitmap_ + begin / 8, (rows + 7) / 8);
  return word;
}

/// Reads the values from `index` on, as many as there are and fit in `to`.
void PackedColumn::unpack(size_t index, Block& to) const {
  static constexpr std::array<uint8_t, kBlock> kZeros{};
  const size_t size = std::min(kBlock, count_ - index);
  std::array<std::array<uint8_t, kBlock>, 8> last;  // a copy: a block would read beyond it
  std::array<const uint8_t*, 8> planes;
  planes.fill(kZeros.data());
  for (size_t plane = 0; plane < width_; ++plane) {
    planes[plane] = planes_ + plane * count_ + index;
    if (size == kBlock) continue;
    std::memcpy(last[plane].data(), planes[plane], size);
    planes[plane] = last[plane].data();
  }
  if (width_ <= 1) return put_together<1>(planes, size, to.data());
  if (width_ <= 2) return put_together<2>(planes, size, to.data());
  if (width_ <= 4) return put_together<4>(planes, size, to.data());
  put_together<8>(planes, size, to.data());
}

void PackedColumn::read(Block& rows) {
  if (bitmap_ == nullptr) {
    unpack(next_, rows);
    next_ += kBlock;
    return;
  }
  uint64_t word = stored_rows(block_);
  std::fill_n(rows.begin(), std::min(kBlock, row_count_ - block_), 0);
  block_ += kBlock;
  size_t next = next_;
  for (; word != 0; word &= word - 1) {
    rows[static_cast<size_t>(std::countr_zero(word))] = values_[next % kBlock];
    if (++next % kBlock == 0) unpack(next, values_);
  }
  next_ = next;
}

}  // namespace convtrace::reader
