#include "cupti/memory/address_map.h"

#include <algorithm>
#include <utility>

namespace convtrace::cupti {
namespace {

constexpr size_t kMaxFreed = 64 * 1024;
/// A range that was freed long ago is in no cache, so it is prefetched this many frees before it is
/// forgotten.
constexpr size_t kAhead = 8;

Layer layer_of(format::MemorySource source) {
  return source == format::MemorySource::kFramework ? Layer::kBlock : Layer::kDriver;
}

/// The tag of a record: source 4 bits, device type 4, index 8.
uint16_t tag_of(const MemoryRange& range) {
  return static_cast<uint16_t>(static_cast<unsigned>(range.source) |
                               static_cast<unsigned>(range.device.type) << 4 |
                               static_cast<unsigned>(range.device.index) << 8);
}

format::MemorySource source_of(const RangeRecord& record) {
  return static_cast<format::MemorySource>(record.tag() & 15);
}

void tell(const RangeRecord& record, MemoryRange& range) {
  range.base = record.base;
  range.bytes = record.bytes();
  range.generation = record.generation;
  range.stream = record.stream;
  range.source = source_of(record);
  range.device.type = static_cast<format::Device::Type>(record.tag() >> 4 & 15);
  range.device.index = static_cast<uint8_t>(record.tag() >> 8);
}

}  // namespace

void AddressMap::end(uint32_t record, Layer layer, MemoryRange& range) {
  tell(table_.at(record), range);
  range.freed = true;
  if (layer == Layer::kBlock) blocks_.end(range.base, range.generation);
  table_.end(record, layer);
  live_.fetch_sub(1, std::memory_order_relaxed);
  remember({record, static_cast<uint32_t>(range.generation)});
}

void AddressMap::remember(const Freed& freed) {
  if (freed_.size() < kMaxFreed) return freed_.push_back(freed);
  const Freed oldest = std::exchange(freed_[oldest_freed_], freed);
  oldest_freed_ = (oldest_freed_ + 1) % kMaxFreed;
  table_.prefetch(freed_[(oldest_freed_ + kAhead) % kMaxFreed].record);
  table_.forget(oldest.record, oldest.generation);
}

/// Ends ranges that a new range overlaps: their frees were not seen.
void AddressMap::end_overlapped(const RangeRecord& range, Layer layer) {
  uint64_t first = range.base;
  while (const uint32_t record = table_.live_in(first, range.last(), layer)) {
    // There may be others before it on this page.
    first = std::max(first, table_.at(record).base & ~(AddressTable::kPageBytes - 1));
    MemoryRange ended;
    end(record, layer, ended);
  }
}

void AddressMap::restore(const MemoryRange& range) {
  const Layer layer = layer_of(range.source);
  RangeRecord record{.base = range.base, .generation = range.generation, .stream = range.stream};
  const uint64_t bytes = std::min(range.bytes, AddressTable::kMaxBytes + 1);
  record.bytes_and_tag = bytes | uint64_t{tag_of(range)} << RangeRecord::kBytesBits;

  if (!AddressTable::keeps(record)) return;
  const Lock lock(writing_);
  end_overlapped(record, layer);
  if (!table_.begin(record, layer)) return;
  live_.fetch_add(1, std::memory_order_relaxed);
  if (layer == Layer::kBlock) blocks_.begin(range.base, range.generation);
}

std::optional<MemoryRange> AddressMap::release(uint64_t base, format::MemorySource source) {
  if (!AddressTable::keeps({.base = base})) return std::nullopt;
  const Layer layer = layer_of(source);
  const Lock lock(writing_);
  const uint32_t record = table_.live_at(base, layer);
  if (record == 0) return std::nullopt;
  const RangeRecord range = table_.at(record);
  if (range.base != base) return std::nullopt;
  std::optional<MemoryRange> ended(std::in_place);  // as in find()
  end(record, layer, *ended);
  return ended;
}

std::optional<MemoryRange> AddressMap::find(uint64_t address) const {
  // Constructed in place: copying the pieces that were just written would cost more than all the
  // rest.
  std::optional<MemoryRange> answer;
  AddressTable::Found found;
  if (!table_.may_hold(address) || !table_.find(address, found)) return answer;
  MemoryRange& range = answer.emplace();
  tell(found.range, range);
  range.freed = found.layer == Layer::kFreed;
  range.freed_block = found.freed_block;
  return answer;
}

}  // namespace convtrace::cupti
