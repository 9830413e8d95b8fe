#pragma once
/// @file last_owners.h
/// The former owner of memory: for each address, the first record in the present allocation and in
/// the one before.
///
/// Threads:  one.
/// Memory:   the last 65536 addresses.

#include <cstdint>
#include <utility>

#include "format/findings/common/recent.h"
#include "format/model/events.h"

namespace convtrace::judge {

struct Owner {
  uint64_t generation = 0;  ///< 0: not known
  format::Place place;
  uint32_t step = 0;
  format::StringId slot, op;
};

class LastOwners {
 public:
  void see(const format::TensorStats& event) {
    if (event.value.generation == 0) return;
    auto& [now, before] = lives_.get(base_of(event)).first;
    // Records of a device may arrive after those of the memory's next owner.
    if (now.generation >= event.value.generation) return;
    before = std::exchange(now, {.generation = event.value.generation,
                                 .place = event.place,
                                 .step = event.header.step,
                                 .slot = event.slot,
                                 .op = event.op});
  }
  /// @return the owner of the memory before the allocation of `event`, which was recorded.
  [[nodiscard]] Owner before(const format::TensorStats& event) const {
    const std::pair<Owner, Owner>* const lives = lives_.find(base_of(event));
    const bool known = lives != nullptr && event.value.generation != 0 &&
                       lives->first.generation == event.value.generation;
    return known ? lives->second : Owner{};
  }

 private:
  static uint64_t base_of(const format::TensorStats& event) {
    return event.address - event.value.offset;
  }

  Recent<std::pair<Owner, Owner>> lives_;  ///< by address: present allocation, the one before
};

}  // namespace convtrace::judge
