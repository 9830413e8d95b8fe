#pragma once
/// @file named_enum.h
/// Enumerations with stored values, each defined by one list: X(enumerator, value, spelling).

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace convtrace::format {

/// The number of enumerators of an enumeration; their values are 0, 1, 2 and so on.
template <typename Enum>
inline constexpr size_t kEnumCount = 0;

}  // namespace convtrace::format

#define CONVTRACE_ENUMERATOR(name, value, text) name = value,
#define CONVTRACE_ENUM_CASE(name, value, text) \
  case name:                                   \
    return text;
#define CONVTRACE_ENUM_ONE(name, value, text) +1

/// Declares `enum class Name : uint8_t` with to_string() and kEnumCount. For use in namespace
/// convtrace::format. @param LIST  a macro that passes each enumerator to its argument.
#define CONVTRACE_NAMED_ENUM(Name, LIST)                    \
  enum class Name : uint8_t { LIST(CONVTRACE_ENUMERATOR) }; \
  constexpr std::string_view to_string(Name value) {        \
    using enum Name;                                        \
    switch (value) { LIST(CONVTRACE_ENUM_CASE) }            \
    return "unknown";                                       \
  }                                                         \
  template <>                                               \
  inline constexpr size_t kEnumCount<Name> = 0 LIST(CONVTRACE_ENUM_ONE);
