#pragma once
/// @file json.h
/// The JSON form of numbers and statistics of a trace, the same in every tool.
///
/// Rules:    hashes as hex text, non-finite numbers as text ("nan", "inf", "-inf": JSON has none),
///           128-bit integers as text, 64-bit integers as numbers; a hash-only record has `hash`
///           and `count` alone.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "format/model/events.h"

namespace convtrace::tools {

using Json = nlohmann::ordered_json;

[[nodiscard]] Json json_number(double value);
/// @return "0x" and 16 lower-case hexadecimal digits.
[[nodiscard]] std::string hex_text(uint64_t value);
/// @return decimal text of a two's complement 128-bit integer.
[[nodiscard]] std::string wide_integer_text(format::WideScalar value);

[[nodiscard]] Json stats_json(const format::Stats& stats, format::DType dtype,
                              format::Capture capture);

/// @return null for kNoStep.
[[nodiscard]] Json step_json(uint32_t step);

/// @return null for "".
[[nodiscard]] Json text_or_null(const std::string& text);

/// @return an array of what `json_of` makes of each.
template <typename Range, typename Of>
[[nodiscard]] Json json_list(const Range& all, const Of& json_of) {
  Json list = Json::array();
  for (const auto& one : all) list.push_back(json_of(one));
  return list;
}
/// @return one line, or lines indented by `indent` spaces. Everything but printable ASCII is
/// escaped; invalid UTF-8 becomes U+FFFD.
[[nodiscard]] std::string dump_json(const Json& json, int indent = -1);

}  // namespace convtrace::tools
