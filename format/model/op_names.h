#pragma once
/// @file op_names.h
/// Relations between the observer's names of ops and slots.
///
/// Place:    the observer gives the names (calls/ops.py); findings and the diff read them.
/// Threads:  pure functions.

#include <algorithm>
#include <string>
#include <string_view>

namespace convtrace::format {

/// @return the op whose backward `op` is: "Scale" of ScaleBackward; "" where it is no backward.
[[nodiscard]] inline std::string_view forward_name(std::string_view op) {
  constexpr std::string_view kEnd = "Backward";
  return op.ends_with(kEnd) ? op.substr(0, op.size() - kEnd.size()) : std::string_view();
}

/// @param slot  of a record after an op. @return the slot of the operand before it: "saved:0" for
/// "saved_shared:0"; "" if it is no such record.
[[nodiscard]] inline std::string operand_before(std::string_view slot) {
  const size_t colon = std::min(slot.find(':'), slot.size());
  const std::string_view name = slot.substr(0, colon);
  for (const std::string_view behind : {"_after", "_shared", "_counted"}) {
    if (name.ends_with(behind)) {
      return std::string(name.substr(0, name.size() - behind.size())) +
             std::string(slot.substr(colon));
    }
  }
  return "";
}

}  // namespace convtrace::format
