// The writing half of the address table: used by one thread at a time.

#include "cupti/memory/address_table.h"

#include <algorithm>
#include <bit>

#include "cupti/memory/address_list.h"

namespace convtrace::cupti {
namespace {

/// The size class of a block of lists_ with this many words.
constexpr unsigned class_of(size_t words) {
  return static_cast<unsigned>(std::bit_width((words + 1) / 2 - 1));
}
constexpr size_t index_of(Layer layer) { return static_cast<size_t>(layer); }

}  // namespace

AddressTable::Change::Change(uint32_t which, std::optional<Layer> left,
                             std::optional<Layer> entered)
    : record(which), from(left), to(entered) {
  if (from) whole_before = Slot::make(Slot::whole(*from), record);
  if (to) whole_after = Slot::make(Slot::whole(*to), record);
}

AddressTable::AddressTable() : leaves_(new std::atomic<uint64_t*>[kLeaves]()) {}

AddressTable::~AddressTable() {
  for (size_t i = 0; i < kLeaves; ++i) unmap_words(leaves_[i].load(), kLeafSlots);
}

size_t AddressTable::Span::total() const {
  size_t count = 0;
  for (const Pieces& pieces : layers) count += pieces.size();
  return count;
}

bool AddressTable::begin(const RangeRecord& range, Layer layer) {
  const uint32_t record = records_.take(0);
  if (record == 0) return false;
  uint64_t* const words = records_.at(record);
  store_word(words, range.base);
  store_word(words + 1, range.bytes_and_tag);
  store_word(words + 2, range.generation);
  store_word(words + 3, range.stream);
  if (references_.capacity() <= record) references_.reserve(record + record / 8 + 64);
  if (references_.size() <= record) references_.resize(record + 1);
  apply(Change(record, std::nullopt, layer));
  // The last step: a thread that gets the range's address afterwards must find it.
  if (range.base < lowest_.load(std::memory_order_relaxed)) lowest_.store(range.base);
  return true;
}

void AddressTable::end(uint32_t record, Layer layer) {
  apply(Change(record, layer, Layer::kFreed));
}

void AddressTable::forget(uint32_t record, uint32_t generation) {
  if (references_[record] == 0 || static_cast<uint32_t>(at(record).generation) != generation)
    return;
  apply(Change(record, Layer::kFreed, std::nullopt));
}

/// @return the number of whole pages from `at` to `last` in one leaf.
size_t AddressTable::whole_pages(uint64_t at, uint64_t last) {
  if ((at & (kPageBytes - 1)) != 0) return 0;
  return std::min<uint64_t>((last - at + 1) >> kPageShift,
                            kLeafSlots - (at >> kPageShift & (kLeafSlots - 1)));
}

uint32_t AddressTable::live_in(uint64_t first, uint64_t last, Layer layer) const {
  for (uint64_t at = first; at <= last;) {
    const uint64_t* const slot = page_slot(at);
    const size_t pages = whole_pages(at, last);
    size_t without = slot == nullptr ? pages : 0;
    while (without < pages && Slot(load_word(slot + without)).has_none_of(layer)) ++without;
    at += without << kPageShift;
    if (without == pages && pages != 0) continue;
    const uint64_t end = std::min(last, at | (kPageBytes - 1));
    if (slot != nullptr) {
      const uint32_t record = live_in_slot(slot + without, kPageShift, at, end, layer);
      if (record != 0) return record;
    }
    at = end + 1;
  }
  return 0;
}

uint32_t AddressTable::live_in_slot(const uint64_t* slot, unsigned shift, uint64_t first,
                                    uint64_t last, Layer layer) const {
  const Slot content(load_word(slot));
  if (content.is_whole()) return content.layer() == layer ? content.index() : 0;
  const uint64_t* const words = lists_.at(content.index());
  if (content.kind() == SlotKind::kNode) {
    const unsigned sub_shift = shift - kFanShift;
    const uint64_t part = uint64_t{1} << sub_shift;
    for (uint64_t at = first; at <= last; at = (at | (part - 1)) + 1) {
      const uint64_t* const sub = words + (at >> sub_shift & (kFan - 1));
      const uint64_t end = std::min(last, at | (part - 1));
      if (const uint32_t record = live_in_slot(sub, sub_shift, at, end, layer)) return record;
    }
  }
  if (content.kind() != SlotKind::kList) return 0;
  const ListHead head(load_word(words));
  const uint64_t mask = (uint64_t{1} << shift) - 1;
  // If the last piece that begins early enough ends too early, so do all before it.
  const size_t i = last_of(not_behind(words, head.words(), last & mask) & head.mask(layer));
  const Piece piece(load_word(words + i));
  return i != 0 && piece.last() >= (first & mask) ? piece.record() : 0;
}

uint64_t AddressTable::bytes() const {
  return records_.bytes() + lists_.bytes() + leaf_bytes_ +
         references_.capacity() * sizeof(uint32_t);
}

uint64_t* AddressTable::make_page_slot(uint64_t address) {
  std::atomic<uint64_t*>& leaf = leaves_[address >> (kPageShift + kLeafShift)];
  if (leaf.load(std::memory_order_relaxed) == nullptr) {
    uint64_t* const words = map_words(kLeafSlots);
    if (words == nullptr) return nullptr;
    leaf_bytes_ += kLeafSlots * sizeof(uint64_t);
    leaf.store(words, std::memory_order_release);
  }
  return page_slot(address);
}

void AddressTable::apply(const Change& change) {
  const RangeRecord range = at(change.record);
  const uint64_t last = range.last();
  refer(change.record);  // there may be moments in which no slot names it
  for (uint64_t at = range.base; at <= last;) {
    uint64_t* slot = page_slot(at);
    if (slot == nullptr) slot = make_page_slot(at);
    const size_t pages = whole_pages(at, last);
    const size_t changed = slot == nullptr ? pages : apply_to_whole(change, slot, pages);
    at += changed << kPageShift;
    if (changed == pages && pages != 0) continue;
    const uint64_t end = std::min(last, at | (kPageBytes - 1));
    if (slot != nullptr) apply(change, slot + changed, kPageShift, at, end);
    at = end + 1;
  }
  let_go(change.record);
  // Recycled here, after all slots that named them were replaced.
  for (const uint32_t record : unreferenced_) records_.give(record, 0);
  unreferenced_.clear();
}

/// Changes the pages of a large range, which are most of the slots to change.
/// @return the number of slots, from the first on, that belong to one layer completely.
size_t AddressTable::apply_to_whole(const Change& change, uint64_t* slots, size_t count) {
  if (count == 0) return 0;
  const Slot old(load_word(slots));
  const bool reused = !change.from && old.kind() == Slot::whole(Layer::kFreed);
  if (!reused && !old.same_content(change.whole_before)) return 0;
  uint32_t version = version_;
  uint32_t changed = 0;
  for (; changed < count && Slot(load_word(slots + changed)).same_content(old); ++changed)
    store_word(slots + changed, change.whole_after.with_version(++version).word());
  version_ = version;
  if (reused) let_go(old.index(), changed);
  if (!change.from) refer(change.record, changed);
  if (!change.to) let_go(change.record, changed);
  return changed;
}

void AddressTable::apply(const Change& change, uint64_t* slot, unsigned shift, uint64_t first,
                         uint64_t last) {
  const uint64_t mask = (uint64_t{1} << shift) - 1;
  const bool whole = (first & mask) == 0 && (last & mask) == mask;
  const Slot content(load_word(slot));
  if (whole && apply_to_whole(change, slot, 1) == 1) return;
  if (content.kind() == SlotKind::kNode) {
    const unsigned sub_shift = shift - kFanShift;
    const uint64_t part = uint64_t{1} << sub_shift;
    uint64_t* const node = lists_.at(content.index());
    for (uint64_t at = first; at <= last; at = (at | (part - 1)) + 1) {
      apply(change, node + (at >> sub_shift & (kFan - 1)), sub_shift, at,
            std::min(last, at | (part - 1)));
    }
    return merge(slot);
  }
  if (!whole && content.kind() == SlotKind::kList &&
      apply_to_list(change, slot, first & mask, last & mask))
    return;
  load_span(content, mask, scratch_);
  apply(change, scratch_, first & mask, last & mask);
  replace(slot, make_content(scratch_, shift));
}

/// The usual change of an allocator: memory is freed, or allocated again as it was freed. At most
/// one piece of the list goes and one comes, which takes a quarter less time than a Span.
/// @return false if more has to change.
bool AddressTable::apply_to_list(const Change& change, uint64_t* slot, uint64_t first,
                                 uint64_t last) {
  if (!change.to) return false;
  const Slot old(load_word(slot));
  const uint64_t* const list = lists_.at(old.index());
  ListHead head(load_word(list));
  const uint64_t before = not_behind(list, head.words(), last);
  const Piece piece(first, last, change.record);
  ListChange edit{.piece = piece};
  uint32_t forgotten = 0;
  if (change.from) {
    edit.out = last_of(before & head.mask(*change.from));
    if (load_word(list + edit.out) != piece.word()) return false;
  }
  if (const size_t i = last_of(before & head.mask(Layer::kFreed)); i != 0) {
    const Piece freed(load_word(list + i));
    if (freed.last() >= first) {
      if (change.from || freed.first() != first || freed.last() != last) return false;
      edit.out = i;
      forgotten = freed.record();
    }
  }
  const size_t behind = last_of(before & head.mask(*change.to));
  edit.in = behind == 0 ? head.begin(index_of(*change.to)) : behind + 1;
  if (edit.out != 0) {
    edit.in -= edit.out < edit.in ? 1 : 0;
    head = head.with(change.from.value_or(Layer::kFreed), -1);
  }
  head = head.with(*change.to, 1);
  if (head.words() > kMaxListed + 1) return false;
  const uint32_t made = lists_.take(class_of(head.words()));
  if (made == 0) return false;
  uint64_t* const words = lists_.at(made);
  store_word(words, head.word());
  copy_list(list, words, head.words(), edit);
  if (!change.from) refer(change.record);
  replace(slot, Slot::make(SlotKind::kList, made));
  if (forgotten != 0) let_go(forgotten);
  return true;
}

void AddressTable::apply(const Change& change, Span& span, uint64_t first, uint64_t last) {
  if (change.from) remove(span.layers[index_of(*change.from)], change.record);
  if (!change.to) return;
  cut(span.layers[index_of(Layer::kFreed)], first, last);
  insert(span.layers[index_of(*change.to)], Piece(first, last, change.record));
}

void AddressTable::load_span(Slot slot, uint64_t last_offset, Span& span) const {
  for (Pieces& pieces : span.layers) pieces.clear();
  if (slot.is_whole())
    span.layers[index_of(slot.layer())].push_back(Piece(0, last_offset, slot.index()));
  if (slot.kind() != SlotKind::kList) return;
  const uint64_t* const list = lists_.at(slot.index());
  const ListHead head(load_word(list));
  for (size_t layer = 0; layer < kLayers; ++layer) {
    for (size_t i = head.begin(layer); i < head.end(layer); ++i)
      span.layers[layer].push_back(Piece(load_word(list + i)));
  }
}

Slot AddressTable::make_content(const Span& span, unsigned shift) {
  const size_t total = span.total();
  if (total == 0) return Slot();
  if (total == 1) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      if (span.layers[layer].size() == 0) continue;
      const Piece piece = span.layers[layer][0];
      if (piece.first() == 0 && piece.last() == (uint64_t{1} << shift) - 1)
        return Slot::make(Slot::whole(static_cast<Layer>(layer)), piece.record());
    }
  }
  static_assert((kLayers << kMinShift) <= kMaxListed);
  return total > kMaxListed ? make_node(span, shift) : make_list(span);
}

Slot AddressTable::make_list(const Span& span) {
  const uint32_t list = lists_.take(class_of(1 + span.total()));
  if (list == 0) return give_up(span);
  uint64_t* word = lists_.at(list);
  store_word(word++,
             ListHead::make(span.layers[0].size(), span.layers[1].size(), span.layers[2].size()));
  for (const Pieces& pieces : span.layers) {
    for (const Piece piece : pieces) store_word(word++, piece.word());
  }
  return Slot::make(SlotKind::kList, list);
}

Slot AddressTable::make_node(const Span& span, unsigned shift) {
  const uint32_t node = lists_.take(class_of(kFan));
  if (node == 0) return give_up(span);
  uint64_t* const slots = lists_.at(node);
  const uint64_t part = uint64_t{1} << (shift - kFanShift);
  Span sub;
  for (size_t i = 0; i < kFan; ++i) {
    const uint64_t begin = i * part, last = begin + part - 1;
    for (size_t layer = 0; layer < kLayers; ++layer) {
      sub.layers[layer].clear();
      for (const Piece piece : span.layers[layer]) {
        if (piece.last() < begin || piece.first() > last) continue;
        insert(sub.layers[layer], Piece(std::max(piece.first(), begin) - begin,
                                        std::min(piece.last(), last) - begin, piece.record()));
      }
    }
    // No reader has it yet, and the former contents of the block are not in use.
    store_word(slots + i, make_content(sub, shift - kFanShift).word());
  }
  give_up(span);  // its pieces are in the parts now
  return Slot::make(SlotKind::kNode, node);
}

Slot AddressTable::give_up(const Span& span) {
  for (const Pieces& pieces : span.layers) {
    for (const Piece piece : pieces) let_go(piece.record());
  }
  return Slot();
}

void AddressTable::replace(uint64_t* slot, Slot content) {
  const Slot old(load_word(slot));
  store_word(slot, content.with_version(++version_).word());
  if (old.kind() == SlotKind::kNode) lists_.give(old.index(), class_of(kFan));
  if (old.kind() == SlotKind::kList) {
    const ListHead head(load_word(lists_.at(old.index())));
    lists_.give(old.index(), class_of(head.words()));
  }
}

/// Replaces a node whose parts are all equal by a single slot.
void AddressTable::merge(uint64_t* slot) {
  const uint64_t* const slots = lists_.at(Slot(load_word(slot)).index());
  const Slot content(load_word(slots));
  if (content.kind() != SlotKind::kEmpty && !content.is_whole()) return;
  for (size_t i = 1; i < kFan; ++i) {
    if (!content.same_content(Slot(load_word(slots + i)))) return;
  }
  replace(slot, content);
  if (content.is_whole()) let_go(content.index(), kFan - 1);
}

void AddressTable::cut(Pieces& pieces, uint64_t first, uint64_t last) {
  for (size_t i = 0; i < pieces.size() && pieces[i].first() <= last;) {
    const Piece piece = pieces[i];
    const bool left = piece.first()<first, right = piece.last()> last;
    if (piece.last() < first) {
      ++i;
    } else if (left) {
      pieces.set(i++, Piece(piece.first(), first - 1, piece.record()));
      if (!right) continue;
      refer(piece.record());
      pieces.insert(i++, Piece(last + 1, piece.last(), piece.record()));
    } else if (right) {
      pieces.set(i++, Piece(last + 1, piece.last(), piece.record()));
    } else {
      pieces.erase(i);
      let_go(piece.record());
    }
  }
}

void AddressTable::insert(Pieces& pieces, Piece piece) {
  size_t i = 0;
  while (i < pieces.size() && pieces[i] < piece) ++i;
  pieces.insert(i, piece);
  refer(piece.record());
}

void AddressTable::remove(Pieces& pieces, uint32_t record) {
  for (size_t i = 0; i < pieces.size();) {
    if (pieces[i].record() == record) {
      pieces.erase(i);
      let_go(record);
    } else {
      ++i;
    }
  }
}

/// Recycles a record without references, when the slots that named it have been replaced.
void AddressTable::let_go(uint32_t record, uint32_t times) {
  references_[record] -= times;
  if (references_[record] == 0) unreferenced_.push_back(record);
}

}  // namespace convtrace::cupti
