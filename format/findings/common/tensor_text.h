#pragma once
/// @file tensor_text.h
/// The name of a tensor in the text of a finding.

#include <string>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::judge {

/// "input:0 of module h.1 (call 0, forward)", "output:0 of op demo::gelu in module h.0 (...)"
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
