#pragma once
/// @file demangle.h
/// C++ names of symbols.
///
/// Threads:  any.

#include <memory>
#include <string>
#include <string_view>

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#else
/// libiberty's demangler, from which libstdc++'s is derived. libc++'s spells lambdas, nested brackets
/// and some types differently, and the diff compares the names in traces.
extern "C" char* cplus_demangle_v3(const char* mangled, int options);
#endif

namespace convtrace {

/// @return malloc'ed; null if it is no name.
[[nodiscard]] inline char* demangled_or_null(const char* symbol) {
#if defined(__GLIBCXX__)
  return abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr);
#else
  constexpr int kParameters = 1, kTypes = 16;  // DMGL_PARAMS, DMGL_TYPES of demangle.h
  return cplus_demangle_v3(symbol, kParameters | kTypes);
#endif
}

/// @return the C++ spelling of an Itanium-mangled symbol; `symbol` itself if it is none.
[[nodiscard]] inline std::string demangled(const std::string& symbol) {
  // Without the prefix a C name such as "f" would be read as a type ("float").
  if (!symbol.starts_with("_Z")) return symbol;
  const std::unique_ptr<char, decltype(&std::free)> text(demangled_or_null(symbol.c_str()),
                                                         &std::free);
  return text == nullptr ? symbol : std::string(text.get());
}

/// Removes a part, such as a namespace, from a name, wherever it is.
inline void erase_all(std::string& name, std::string_view part) {
  for (size_t at = 0; (at = name.find(part, at)) != std::string::npos;) name.erase(at, part.size());
}

}  // namespace convtrace
