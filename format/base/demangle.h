#pragma once
/// @file demangle.h
/// C++ names of symbols.
///
/// Threads:  any.

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace convtrace {

/// @return the C++ spelling of an Itanium-mangled symbol; `symbol` itself if it is none.
[[nodiscard]] inline std::string demangled(const std::string& symbol) {
  // Without the prefix a C name such as "f" would be read as a type ("float").
  if (!symbol.starts_with("_Z")) return symbol;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr), &std::free);
  return text == nullptr ? symbol : std::string(text.get());
}

}  // namespace convtrace
