// Random histories of storages that own memory, lie over it without owning it, or give it away and
// get it back, and of what is read there. Which reads are stale is known from who owns what.

#include <array>
#include <cstdlib>
#include <optional>
#include <random>
#include <vector>

#include "format/findings/trace_judge.h"
#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::judge;

namespace {

constexpr uint64_t kArena = 0x10000, kBytes = 256;
constexpr size_t kPlaces = 5;
constexpr size_t kNowhere = kPlaces;

class ValueHistory {
 public:
  ValueHistory(uint64_t seed, const format::Definitions& definitions)
      : random_(seed), judge_(definitions) {
    for (int i = 0; i < 60; ++i) act();
  }

  /// Numbers of the reads that were stale, and of those that were found.
  std::vector<uint32_t> expected, found;

 private:
  struct Place {
    uint64_t generation = 0;  ///< 0: nobody's
    uint64_t content = 0;
  };
  /// What a storage was first seen to hold in a life of its memory.
  struct Seen {
    uint64_t generation = 0, content = 0;
    uint32_t version = 0;
    size_t place = 0;
  };
  struct Storage {
    uint64_t id = 0;
    size_t place = 0;
    bool owns = false;
    uint32_t version = 0;
    std::optional<Seen> seen{};
  };

  size_t below(size_t limit) { return random_() % limit; }

  void act() {
    switch (below(8)) {
      case 0:
        return get_memory(storages_.emplace_back(Storage{.id = ++last_storage_, .owns = true}));
      case 1: return borrow();
      case 2: return die();
      case 3: return give_away_or_get_back();
      case 4: return write();
      default: return read();
    }
  }

  Storage* some_storage() {
    return storages_.empty() ? nullptr : &storages_[below(storages_.size())];
  }
  /// Who gets memory writes it, and is seen with it: the first in that life.
  void get_memory(Storage& storage) {
    const size_t place = below(kPlaces);
    if (places_[place].generation != 0) {
      storage.place = kNowhere;
      return;
    }
    storage.place = place;
    places_[place] = {++last_generation_, below(3)};
    read(storage);
  }
  void free_memory(Storage& storage) {
    if (!storage.owns || storage.place == kNowhere) return;
    Place& place = places_[storage.place];
    place.generation = 0;
    if (below(2) == 0) place.content = 3;  // the allocator itself writes there
  }

  void borrow() {
    const Storage* const from = some_storage();
    if (from == nullptr || from->place == kNowhere) return;
    storages_.push_back({.id = ++last_storage_, .place = from->place});
  }
  void die() {
    if (storages_.empty()) return;
    const size_t at = below(storages_.size());
    free_memory(storages_[at]);
    storages_.erase(storages_.begin() + static_cast<ptrdiff_t>(at));
  }
  /// resize_() to nothing and back, as FSDP does.
  void give_away_or_get_back() {
    Storage* const storage = some_storage();
    if (storage == nullptr || !storage->owns) return;
    if (storage->place == kNowhere) return get_memory(*storage);
    free_memory(*storage);
    storage->place = kNowhere;
  }
  /// In place, which counts in the version of the storage that is written through.
  void write() {
    Storage* const storage = some_storage();
    if (storage == nullptr || storage->place == kNowhere) return;
    places_[storage->place].content = below(3);
    ++storage->version;
  }
  void read() {
    Storage* const storage = some_storage();
    if (storage != nullptr && storage->place != kNowhere) read(*storage);
  }

  void read(Storage& storage) {
    const Place& now = places_[storage.place];
    const uint32_t number = ++reads_;
    if (is_stale(storage, now)) expected.push_back(number);
    const bool same = storage.seen && storage.seen->generation == now.generation &&
                      storage.seen->version == storage.version &&
                      storage.seen->place == storage.place;
    if (now.generation != 0 && !same)
      storage.seen = Seen{now.generation, now.content, storage.version, storage.place};
    tell(storage, now, number);
  }
  /// It was seen to hold something else, and the memory that held it is gone, which was not its
  /// own.
  static bool is_stale(const Storage& storage, const Place& now) {
    const std::optional<Seen>& seen = storage.seen;
    return !storage.owns && seen && seen->version == storage.version &&
           seen->generation != now.generation && seen->content != now.content;
  }
  void tell(const Storage& storage, const Place& now, uint32_t number) {
    format::TensorStats event;
    event.slot = format::StringId{number};  // each read is another's: none is a repetition
    event.address = kArena + storage.place * kBytes;
    event.bytes = kBytes;
    event.value = {.storage = storage.id,
                   .offset = 0,
                   .generation = now.generation,
                   .version = storage.version};
    event.stats.hash = now.content;
    for (const Verdict& verdict : judge_.see(event)) {
      CHECK(verdict.record.kind == format::FindingKind::kStaleRead);
      found.push_back(verdict.record.slot.value);
    }
  }

  std::mt19937_64 random_;
  TraceJudge judge_;
  std::array<Place, kPlaces> places_{};
  std::vector<Storage> storages_;
  uint64_t last_storage_ = 0, last_generation_ = 0;
  uint32_t reads_ = 0;
};

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

}  // namespace

TEST_CASE("trace_judge: random histories of values give the stale reads that they were made with",
          "[judge][model]") {
  const uint64_t seed = number_from("JUDGE_SEED", std::random_device()());
  const uint64_t histories = number_from("JUDGE_HISTORIES", 100'000);
  WARN("JUDGE_SEED=" << seed << ", " << histories << " histories");
  const format::Definitions definitions;
  size_t stale = 0, clean = 0;
  for (uint64_t i = 0; i < histories; ++i) {
    const ValueHistory history(seed + i, definitions);
    if (history.found != history.expected) {
      FAIL("JUDGE_SEED=" << seed + i << " JUDGE_HISTORIES=1: expected " << history.expected.size()
                         << ", found " << history.found.size());
    }
    stale += history.expected.size();
    clean += history.expected.empty() ? 1 : 0;
  }
  if (histories < 1000) return;
  CHECK(stale > histories / 10);
  CHECK(clean > histories / 20);
}
