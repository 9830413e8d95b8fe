#pragma once
/// @file toml_file.h
/// The one place that includes toml++, without exceptions, and says where in a file something is.

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
// What version 3.3 takes for granted of its parser does not hold for every file ("[[="): an
// assertion would end the program, an assumption makes what follows undefined. Its checks behind
// them report it.
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/impl/preprocessor.h>
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT_ASSUME(condition) static_assert(true)
#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/settings/nearest.h"

namespace convtrace::settings {

/// @return "file:line".
inline std::string at(const std::string& path, const toml::source_region& source) {
  return source.begin.line == 0 ? path : path + ':' + std::to_string(source.begin.line);
}

/// @return "file:line: text".
inline std::string at(const std::string& path, const toml::source_region& source,
                      std::string_view text) {
  return at(path, source).append(": ").append(text);
}

/// @return the root table; nullopt and one more problem when the file cannot be read or parsed.
inline std::optional<toml::table> read_toml(const std::string& path,
                                            std::vector<std::string>& problems) {
  toml::parse_result result = toml::parse_file(path);
  if (result) return std::move(result).table();
  // It cites the file as it is.
  problems.push_back(at(path, result.error().source(), one_line(result.error().description())));
  return std::nullopt;
}

}  // namespace convtrace::settings
