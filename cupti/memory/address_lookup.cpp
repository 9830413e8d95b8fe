// The reading half of the address table: takes no lock and writes nothing.

#include "cupti/memory/address_list.h"
#include "cupti/memory/address_table.h"

namespace convtrace::cupti {
namespace {

/// A lookup must be repeated only if a change hit the very span that it reads, about one in a
/// thousand under the heaviest load. The limit is never reached, but nothing here may loop without
/// a bound.
constexpr int kMaxTries = 1000;

/// The slots on a reader's way. Before a pointer is followed or an answer given, all of these slots
/// must be unchanged since they were read; then everything that was read through them was valid.
class Path {
 public:
  void add(const uint64_t* slot, uint64_t word) {
    slots_[depth_] = slot;
    words_[depth_++] = word;
  }
  [[nodiscard]] bool holds() const {
    for (int i = 0; i < depth_; ++i) {
      if (load_word(slots_[i]) != words_[i]) return false;
    }
    return true;
  }

 private:
  const uint64_t* slots_[4];
  uint64_t words_[4];
  int depth_ = 0;
};

/// The length of most paths.
struct ShortPath {
  const uint64_t* slot;
  uint64_t word;
  [[nodiscard]] bool holds() const { return load_word(slot) == word; }
};

/// @return the record of the piece that contains `offset`; 0 if there is none.
uint32_t record_at(const uint64_t* list, uint64_t candidates, uint64_t offset) {
  if (candidates == 0) return 0;
  const Piece piece(load_word(list + last_of(candidates)));
  return piece.last() >= offset ? piece.record() : 0;
}

/// Each kind of answer copies other parts of a record.
void keep(const uint64_t* record, Layer layer, AddressTable::Found& found) {
  found.range = load_record(record);
  found.layer = layer;
}
void keep(const uint64_t* record, Layer, MemoryAllocation& allocation) {
  allocation.base = load_word(record + RangeRecord::kBaseWord);
  allocation.generation = load_word(record + RangeRecord::kGenerationWord);
}
void keep_freed(const uint64_t* record, AddressTable::Found& found) {
  found.freed_block = load_word(record + RangeRecord::kGenerationWord);
}
void keep_freed(const uint64_t*, MemoryAllocation&) {}

}  // namespace

bool AddressTable::find(uint64_t address, Found& found) const noexcept {
  return find_as(address, found);
}

MemoryAllocation AddressTable::allocation_at(uint64_t address) const noexcept {
  MemoryAllocation allocation;
  return find_as(address, allocation) ? allocation : MemoryAllocation{};
}

template <typename Kept>
bool AddressTable::find_as(uint64_t address, Kept& kept) const noexcept {
  const uint64_t* const slot = page_slot(address);
  if (slot == nullptr) return false;
  for (int i = 0; i < kMaxTries; ++i) {
    const Slot content(load_word(slot));
    if (content.kind() == SlotKind::kEmpty) return false;
    const Answer answer =
        content.kind() == SlotKind::kNode
            ? look_in_node(slot, content, address, kept)
            : look(ShortPath{slot, content.word()}, content, address & (kPageBytes - 1), kept);
    if (answer != Answer::kOvertaken) return answer == Answer::kFound;
  }
  return false;
}

/// Not inlined: it would take the registers of the usual way.
template <typename Kept>
[[gnu::noinline]] AddressTable::Answer AddressTable::look_in_node(const uint64_t* slot,
                                                                  Slot content, uint64_t address,
                                                                  Kept& kept) const noexcept {
  Path path;
  path.add(slot, content.word());
  unsigned shift = kPageShift;
  while (content.kind() == SlotKind::kNode) {
    shift -= kFanShift;
    slot = lists_.at(content.index()) + (address >> shift & (kFan - 1));
    content = Slot(load_word(slot));
    path.add(slot, content.word());
    if (!path.holds()) return Answer::kOvertaken;
  }
  if (content.kind() == SlotKind::kEmpty) return Answer::kNothing;
  return look(path, content, address & ((uint64_t{1} << shift) - 1), kept);
}

template <typename Path, typename Kept>
AddressTable::Answer AddressTable::look(const Path& path, Slot content, uint64_t offset,
                                        Kept& kept) const noexcept {
  uint32_t record = content.index(), freed = 0;
  Layer layer = content.layer();
  if (content.kind() == SlotKind::kList) {
    const uint64_t* const list = lists_.at(content.index());
    const ListHead head(load_word(list));
    const uint64_t candidates = not_behind(list, head.words(), offset);
    const auto in_layer = [&](Layer which) {
      return record_at(list, candidates & head.mask(which), offset);
    };
    layer = Layer::kBlock;
    record = in_layer(layer);
    if (record == 0) record = in_layer(layer = Layer::kDriver);
    if (record == 0) record = in_layer(layer = Layer::kFreed);
    if (Kept::kWithFreedBlock && layer == Layer::kDriver) freed = in_layer(Layer::kFreed);
    if (!path.holds()) return Answer::kOvertaken;
    if (record == 0) return Answer::kNothing;
  }
  keep(records_.at(record), layer, kept);
  if (freed != 0) keep_freed(records_.at(freed), kept);
  return path.holds() ? Answer::kFound : Answer::kOvertaken;
}

}  // namespace convtrace::cupti
