#include "format/findings/memory/stale_values.h"

namespace convtrace::judge {
namespace {

uint64_t key_of(const format::ValueId& id) {
  return (id.storage * 0x9E3779B97F4A7C15 ^ id.offset) * 0xD6E8FEB86659FD93;
}

MadeValue made_by(const format::TensorStats& event) {
  return {.id = event.value,
          .place = event.place,
          .step = event.header.step,
          .slot = event.slot,
          .op = event.op,
          .address = event.address,
          .bytes = event.bytes,
          .hash = event.stats.hash};
}

/// @return whether both records are of one version of one value at one address, so that their bytes
/// should be equal.
bool same_value(const MadeValue& made, const format::TensorStats& event) {
  return made.id.storage == event.value.storage && made.id.offset == event.value.offset &&
         made.id.version == event.value.version && made.address == event.address &&
         made.bytes == event.bytes;
}

}  // namespace

std::optional<MadeValue> StaleValues::see(const format::TensorStats& event) {
  if (event.value.storage == 0) return std::nullopt;  // an operand of a raw kernel
  if (event.value.generation == 0) return read_of_nobodys(event);
  auto [owner, owned] = owners_.get(event.value.generation);
  if (!owned) owner = event.value.storage;
  auto [value, known] = values_.get(key_of(event.value));
  if (!known) {
    value = made_by(event);
    return std::nullopt;
  }
  if (same_value(value, event) && value.id.generation == event.value.generation) {
    return std::nullopt;
  }
  const MadeValue then = value;
  value = made_by(event);
  return is_stale(then, event) ? std::optional(then) : std::nullopt;
}

bool StaleValues::is_stale(const MadeValue& made, const format::TensorStats& event) const {
  const uint64_t* const first_owner = owners_.find(made.id.generation);
  const bool borrowed = first_owner != nullptr && *first_owner != event.value.storage;
  return same_value(made, event) && borrowed && made.hash != event.stats.hash;
}

/// The memory was freed and not allocated again, and the allocator or poison has written there.
/// Memory that was never reported is left alone.
std::optional<MadeValue> StaleValues::read_of_nobodys(const format::TensorStats& event) const {
  const MadeValue* const made = values_.find(key_of(event.value));
  if (made == nullptr || !is_stale(*made, event)) return std::nullopt;
  return *made;
}

}  // namespace convtrace::judge
