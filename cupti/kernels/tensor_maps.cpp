#include "cupti/kernels/tensor_maps.h"

#include <cstring>

namespace convtrace::cupti {
namespace {

/// 64 bits for 128 bytes, never 0. Two maps of a process with the same hash are not expected.
uint64_t hash_of(const void* map) {
  uint64_t words[TensorMaps::kBytes / sizeof(uint64_t)];
  std::memcpy(words, map, sizeof words);
  uint64_t hash = 0x9E3779B97F4A7C15;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0xFF51AFD7ED558CCD;
    hash ^= hash >> 32;
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace

void TensorMaps::learn(const void* map, uint64_t address) {
  const uint64_t hash = hash_of(map);
  Set& set = sets_[hash % kSets];
  const Lock lock(learning_);
  Slot* slot = nullptr;
  for (Slot& one : set) {
    const uint64_t held = one.hash.load(std::memory_order_relaxed);
    if (held == hash) return;
    if (held == 0 && slot == nullptr) slot = &one;
  }
  if (slot == nullptr) slot = &set[next_way_++ % kWays];
  slot->hash.store(0, std::memory_order_release);
  slot->address.store(address, std::memory_order_release);
  slot->hash.store(hash, std::memory_order_release);
  any_.store(true, std::memory_order_relaxed);
}

uint64_t TensorMaps::find(const void* map) const noexcept {
  const uint64_t hash = hash_of(map);
  for (const Slot& slot : sets_[hash % kSets]) {
    if (slot.hash.load(std::memory_order_acquire) != hash) continue;
    const uint64_t address = slot.address.load(std::memory_order_acquire);
    // A thread that saw a newer address also sees that the hash has changed.
    return slot.hash.load(std::memory_order_relaxed) == hash ? address : 0;
  }
  return 0;
}

}  // namespace convtrace::cupti
