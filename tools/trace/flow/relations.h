#pragma once
/// @file relations.h
/// The relations of recorded values in a step: one call, one memory, equal bytes.
///
/// Threads:  pure functions.

#include <string>
#include <utility>

#include "tools/trace/flow/made_by.h"

namespace convtrace::diff {

[[nodiscard]] inline bool is_forward(format::Phase phase) {
  return phase == format::Phase::kForward || phase == format::Phase::kRecompute ||
         phase == format::Phase::kData || phase == format::Phase::kLoss;
}

/// A call of a module or of an op in it.
[[nodiscard]] inline bool is_one_call(const Passed& a, const Passed& b) {
  return a.place.scope == b.place.scope && a.op == b.op && a.place.call == b.place.call;
}

[[nodiscard]] inline bool is_same_memory(const Passed& a, const Passed& b) {
  const auto& [storage, offset, generation, version] = a.value;
  return storage != 0 && storage == b.value.storage && generation == b.value.generation &&
         version == b.value.version && offset < b.value.offset + b.bytes &&
         b.value.offset < offset + a.bytes;
}

[[nodiscard]] inline bool has_same_bytes(const Passed& a, const Passed& b) {
  return a.stats.count > 1 && a.stats.count == b.stats.count && a.stats.hash == b.stats.hash;
}

[[nodiscard]] inline Maker maker_of(const Passed& one, const format::Definitions& names,
                                    std::string slot) {
  return {.scope = std::string(names.text(one.place.scope)),
          .op = std::string(names.text(one.op)),
          .slot = std::move(slot),
          .call = one.place.call,
          .in_no_module = !one.place.scope};
}

}  // namespace convtrace::diff
