#include "format/judge/life_table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace convtrace::judge {
namespace {

constexpr uint32_t kNone = AddressIndex::kNone;
constexpr uint64_t kAddressLimit = uint64_t{1} << 48;
constexpr uint64_t kMostBytes = uint64_t{1} << 44;

}  // namespace

void LifeTable::Living::put(uint64_t generation, uint32_t record, const Lives& lives) {
  if (4 * (count_ + 1) > 3 * slots_.size()) grow(lives);
  size_t at = home(generation);
  while (slots_[at] != kNone) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = record;
  ++count_;
}

void LifeTable::Living::grow(const Lives& lives) {
  const std::vector<uint32_t> old =
      std::exchange(slots_, std::vector<uint32_t>(std::max<size_t>(64, 2 * slots_.size()), kNone));
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(slots_.size()));
  count_ = 0;
  for (const uint32_t record : old) {
    if (record != kNone) put(lives[record].generation, record, lives);
  }
}

uint32_t LifeTable::Living::find(uint64_t generation, const Lives& lives) const {
  if (slots_.empty()) return kNone;
  for (size_t at = home(generation);; at = (at + 1) & (slots_.size() - 1)) {
    const uint32_t record = slots_[at];
    if (record == kNone || lives[record].generation == generation) return record;
  }
}

/// Those that were put behind it because it was in their way come nearer.
void LifeTable::Living::erase(uint64_t generation, const Lives& lives) {
  const size_t mask = slots_.size() - 1;
  size_t hole = home(generation);
  while (lives[slots_[hole]].generation != generation) hole = (hole + 1) & mask;
  for (size_t at = (hole + 1) & mask; slots_[at] != kNone; at = (at + 1) & mask) {
    const size_t wanted = home(lives[slots_[at]].generation);
    if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = kNone;
  --count_;
}

void LifeTable::Living::clear() {
  slots_.clear();
  count_ = 0;
}

Life* LifeTable::begin(const format::Alloc& event, std::vector<Life>& before) {
  before.clear();
  // Memory of unknown size is known by its base alone.
  const uint64_t bytes = std::max<uint64_t>(1, event.bytes);
  if (bytes > kMostBytes || event.address >= kAddressLimit - bytes || event.generation == 0) {
    return nullptr;
  }
  const Layer layer = layer_of(event.source);
  const uint64_t end = event.address + bytes;
  cut(event.address, end, layer, &before);
  if (layer == Layer::kDriver) cut(event.address, end, Layer::kBlock, nullptr);
  Life life;
  life.set_range(event.address, bytes);
  life.generation = event.generation & Life::kMask48;
  life.source = static_cast<uint64_t>(event.source) & 15;
  const uint32_t record = add(life);
  index_of(layer).put(event.address, record);
  living_.put(event.generation, record, lives_);
  return &lives_[record];
}

Life* LifeTable::end(const format::Free& event) {
  const uint32_t record = living_.find(event.generation, lives_);
  if (record == kNone) return nullptr;
  living_.erase(event.generation, lives_);
  Life& life = lives_[record];
  // Blocks do not outlive what they were cut out of.
  if (life.has_blocks != 0) cut(life.base, life.end(), Layer::kBlock, nullptr);
  life.freed = 1;
  life.freed_in_step = event.header.step;
  remember_freed(record);
  return &life;
}

Life* LifeTable::living(uint64_t generation) {
  const uint32_t record = living_.find(generation, lives_);
  return record == kNone ? nullptr : &lives_[record];
}

Life* LifeTable::at(uint64_t address, Layer layer) {
  const uint32_t record = index_of(layer).at_or_before(address);
  return record == kNone || !lives_[record].holds(address) ? nullptr : &lives_[record];
}

uint32_t LifeTable::add(const Life& life) {
  uint32_t record = static_cast<uint32_t>(lives_.size());
  if (unused_.empty()) {
    lives_.emplace_back();
  } else {
    record = unused_.back();
    unused_.pop_back();
  }
  lives_[record] = life;
  lives_[record].kept = 1;
  return record;
}

/// From everywhere but the ring of freed ones, which notices.
void LifeTable::remove(uint32_t record) {
  Life& life = lives_[record];
  if (life.freed == 0) living_.erase(life.generation, lives_);
  index_of(layer_of(static_cast<format::MemorySource>(life.source))).erase(life.base);
  life.kept = 0;
  if (life.freed == 0) unused_.push_back(record);
}

/// Ends all that lies in [first, end). What lies over its edges is cut; a life that is cut has
/// ended without our seeing it, so nothing is known of its parts.
void LifeTable::cut(uint64_t first, uint64_t end, Layer layer, std::vector<Life>* before) {
  AddressIndex& index = index_of(layer);
  uint32_t record = index.at_or_before(first);
  if (record == kNone || lives_[record].end() <= first) record = index.after(first);
  while (record != kNone && lives_[record].base < end) {
    Life old = lives_[record];
    remove(record);
    if (old.freed != 0) {
      const auto keep = [&](uint64_t from, uint64_t to) {
        if (from >= to) return;
        Life part = old;
        part.set_range(from, to - from);
        const uint32_t kept = add(part);
        index.put(from, kept);
        if (old.more_uses != 0) ++more_uses_[old.generation].parts;
        remember_freed(kept);
      };
      keep(old.base, first);
      keep(end, old.end());
    }
    if (old.freed != 0 && before != nullptr) {
      before->push_back(old);
    } else {
      drop_uses(old);
    }
    record = index.after(std::max<uint64_t>(old.base, first));
  }
}

void LifeTable::remember_freed(uint32_t record) {
  if (freed_.size() < kMostFreed) {
    freed_.push_back(record);
    return;
  }
  const uint32_t oldest = std::exchange(freed_[oldest_freed_], record);
  oldest_freed_ = (oldest_freed_ + 1) % kMostFreed;
  if (lives_[oldest].kept != 0) {
    drop_uses(lives_[oldest]);
    remove(oldest);
  }
  unused_.push_back(oldest);
}

void LifeTable::clear() { *this = LifeTable(); }

uint64_t LifeTable::bytes() const {
  return lives_.size() * sizeof(Life) + unused_.capacity() * sizeof(uint32_t) + living_.bytes() +
         index_[0].bytes() + index_[1].bytes() + freed_.capacity() * sizeof(uint32_t);
}

}  // namespace convtrace::judge
