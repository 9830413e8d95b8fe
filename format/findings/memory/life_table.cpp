#include "format/findings/memory/life_table.h"

#include <algorithm>
#include <utility>

namespace convtrace::judge {
namespace {

constexpr uint32_t kNone = AddressIndex::kNone;
constexpr uint64_t kAddressLimit = uint64_t{1} << 48;
constexpr uint64_t kMostBytes = uint64_t{1} << 44;

}  // namespace

void LifeTable::Living::put(uint64_t generation, uint32_t record) {
  if (8 * (count_ + 1) > 7 * slots_.size()) grow();
  size_t at = home(tag_of(generation));
  while (slots_[at].record != kNone) at = (at + 1) & mask_;
  slots_[at] = {record, tag_of(generation)};
  ++count_;
}

void LifeTable::Living::grow() {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  mask_ = slots_.size() - 1;
  --shift_;
  count_ = 0;
  for (const Slot& slot : old) {
    if (slot.record != kNone) put(slot.tag, slot.record);
  }
}

/// Moves entries that had been displaced by the erased one closer to their place.
void LifeTable::Living::erase(uint64_t generation) {
  size_t hole = slot_of(tag_of(generation));
  for (size_t at = (hole + 1) & mask_; slots_[at].record != kNone; at = (at + 1) & mask_) {
    const size_t wanted = home(slots_[at].tag);
    if (((at - wanted) & mask_) < ((at - hole) & mask_)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
  --count_;
}

Life* LifeTable::begin(const format::Alloc& event, std::vector<Life>& before) {
  before.clear();
  // 0 bytes: the size is unknown, so only the base counts.
  const uint64_t bytes = std::max<uint64_t>(1, event.bytes);
  if (bytes > kMostBytes || event.address >= kAddressLimit - bytes || event.generation == 0) {
    return nullptr;
  }
  const Layer layer = layer_of(event.source);
  Life life;
  life.set_range(event.address, bytes);
  life.generation = event.generation & Life::kMask48;
  life.source = static_cast<uint64_t>(event.source) & 15;
  if (layer == Layer::kDriver) cut(life.base, life.end(), Layer::kBlock, nullptr);
  uint32_t record = take_place(life, layer, before);
  if (record == kNone) {
    cut(life.base, life.end(), layer, &before);
    record = add(life);
    index_of(layer).put(life.base, record);
  }
  living_.put(life.generation, record);
  return &lives_[record];
}

Life* LifeTable::end(const format::Free& event) {
  const uint32_t record = living_.find(event.generation);
  if (record == kNone) return nullptr;
  Life& life = lives_[record];
  if (life.generation != event.generation) return nullptr;
  living_.erase(event.generation);
  // Blocks end with the segment that they lie in.
  if (life.has_blocks != 0) cut(life.base, life.end(), Layer::kBlock, nullptr);
  life.freed = 1;
  life.freed_in_step = event.header.step;
  remember_freed(record);
  return &life;
}

Life* LifeTable::at(uint64_t address, Layer layer) {
  const uint32_t record = index_of(layer).at_or_before(address);
  return record == kNone || !lives_[record].holds(address) ? nullptr : &lives_[record];
}

uint32_t LifeTable::add(const Life& life) {
  uint32_t record = kNone;
  if (unused_.empty()) {
    record = lives_.add();
  } else {
    record = unused_.back();
    unused_.pop_back();
  }
  lives_[record] = life;
  return record;
}

/// Removes the record everywhere but in the ring of freed ones, where its generation shows that.
void LifeTable::remove(uint32_t record) {
  Life& life = lives_[record];
  if (life.freed == 0) living_.erase(life.generation);
  index_of(layer_of(static_cast<format::MemorySource>(life.source))).erase(life.base);
  life.generation = 0;
  unused_.push_back(record);
}

/// The usual case: memory is allocated again as it was freed, or nearly so. Then its place in the
/// index stays.
/// @return the record that was freed there; kNone if no freed record begins there.
uint32_t LifeTable::take_place(const Life& life, Layer layer, std::vector<Life>& before) {
  const AddressIndex::Place place = index_of(layer).at(life.base);
  if (place.record == nullptr) return kNone;
  const uint32_t record = *place.record;
  const Life old = lives_[record];
  if (old.freed == 0) return kNone;
  before.push_back(old);
  lives_[record] = life;  // before cut(), which may forget the oldest freed record
  if (place.next < life.end()) cut(place.next, life.end(), layer, &before);
  keep_part(old, life.end(), old.end());
  return record;
}

/// Keeps the part of a freed allocation that the new one does not cover.
void LifeTable::keep_part(const Life& old, uint64_t from, uint64_t to) {
  if (from >= to) return;
  Life part = old;
  part.set_range(from, to - from);
  const uint32_t kept = add(part);
  index_of(layer_of(static_cast<format::MemorySource>(old.source))).put(from, kept);
  if (old.more_uses != 0) ++more_uses_[old.generation].parts;
  remember_freed(kept);
}

/// Ends everything in [first, end), and cuts what crosses its edges. A live allocation that is cut
/// has ended without a report, so nothing is known about its parts.
void LifeTable::cut(uint64_t first, uint64_t end, Layer layer, std::vector<Life>* before) {
  AddressIndex& index = index_of(layer);
  uint32_t record = index.at_or_before(first);
  if (record == kNone || lives_[record].end() <= first) record = index.after(first);
  while (record != kNone && lives_[record].base < end) {
    Life old = lives_[record];
    remove(record);
    if (old.freed != 0) {
      keep_part(old, old.base, first);
      keep_part(old, end, old.end());
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
  const Freed freed{record, static_cast<uint32_t>(lives_[record].generation)};
  if (freed_.size() < kMostFreed) {
    freed_.push_back(freed);
    return;
  }
  const Freed oldest = std::exchange(freed_[oldest_freed_], freed);
  oldest_freed_ = (oldest_freed_ + 1) % kMostFreed;
  Life& life = lives_[oldest.record];
  if (life.freed == 0 || static_cast<uint32_t>(life.generation) != oldest.tag) return;
  drop_uses(life);
  remove(oldest.record);
}

void LifeTable::clear() { *this = LifeTable(); }

uint64_t LifeTable::bytes() const {
  return lives_.bytes() + unused_.capacity() * sizeof(uint32_t) + living_.bytes() +
         index_[0].bytes() + index_[1].bytes() + freed_.capacity() * sizeof(Freed);
}

}  // namespace convtrace::judge
