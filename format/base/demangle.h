#pragma once
/// @file demangle.h
/// C++ names of symbols.
///
/// Threads:  any.

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace convtrace {

/// @return the C++ spelling of an Itanium-mangled symbol; `symbol` itself if it is none.
[[nodiscard]] inline std::string demangled(const std::string& symbol) {
  // Without the prefix a C name such as "f" would be read as a type ("float").
  if (!symbol.starts_with("_Z")) return symbol;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr), &std::free);
  return text == nullptr ? symbol : std::string(text.get());
}

/// Removes a part, such as a namespace, from a name, wherever it is.
inline void erase_all(std::string& name, std::string_view part) {
  for (size_t at = 0; (at = name.find(part, at)) != std::string::npos;) name.erase(at, part.size());
}

}  // namespace convtrace
