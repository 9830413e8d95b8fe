#pragma once
/// @file wording.h
/// Texts that all findings share, and how often a repeated finding is reported.
///
/// Threads:  pure functions.

#include <bit>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

/// A repeated finding is reported four times, then at each doubling: enough to see it, without a
/// flood.
[[nodiscard]] constexpr bool worth_saying(uint64_t occurrence) {
  return occurrence <= 4 || std::has_single_bit(occurrence);
}

[[nodiscard]] inline std::string hex(uint64_t number) {
  char text[24];
  snprintf(text, sizeof text, "0x%" PRIx64, number);
  return text;
}

/// @return the last sentence of the text of a repeated finding; "" for the first one.
[[nodiscard]] inline std::string repeated_text(uint64_t occurrence) {
  if (occurrence == 1) return "";
  return " It is occurrence " + std::to_string(occurrence) + " of the same.";
}

/// @return the name of a tensor: "input:0 of module h.1 (call 0, forward)", "output:0 of op demo::gelu
/// in module h.0 (...)".
[[nodiscard]] inline std::string tensor_text(format::StringId slot, format::StringId op,
                                             const format::Place& place,
                                             const format::Definitions& definitions) {
  std::string text(definitions.text(slot));
  if (op) text += " of op " + std::string(definitions.text(op)) + " in";
  if (!op) text += " of";
  const std::string_view scope = definitions.text(place.scope);
  return text + (scope.empty() ? " the root module" : " module " + std::string(scope)) + " (call " +
         std::to_string(place.call) + ", " + std::string(to_string(place.phase)) + ")";
}

}  // namespace convtrace::judge
