#pragma once
/// @file enums.h
/// Enumerators as they are stored: a newer writer may use ones that are not known here.

#include <cstdint>

#include "format/model/events.h"

namespace convtrace::reader {

template <typename Enum>
inline constexpr uint64_t kEnumCount = format::kEnumCount<Enum>;
template <>
inline constexpr uint64_t kEnumCount<format::DType> = format::kDTypeCount;
template <>
inline constexpr uint64_t kEnumCount<format::Device::Type> = 3;
template <>
inline constexpr uint64_t kEnumCount<format::Copy::Kind> = 3;

/// Remembers whether all stored enumerators of an event are known here.
struct Enums {
  bool known = true;

  template <typename Enum>
  void set(Enum& to, uint64_t stored) {
    static_assert(kEnumCount<Enum> > 0);
    if (stored < kEnumCount<Enum>) {
      to = static_cast<Enum>(stored);
    } else {
      known = false;
    }
  }
};

}  // namespace convtrace::reader
