#pragma once
/// @file enums.h
/// Enumerators as they are stored: a newer writer may use ones that are not known here.

#include <cstdint>

#include "format/base/named_enum.h"

namespace convtrace::reader {

/// Remembers whether all stored enumerators of an event are known here.
struct Enums {
  bool known = true;

  template <typename Enum>
  void set(Enum& to, uint64_t stored) {
    static_assert(format::kEnumCount<Enum> > 0);
    if (stored < format::kEnumCount<Enum>) {
      to = static_cast<Enum>(stored);
    } else {
      known = false;
    }
  }
};

}  // namespace convtrace::reader
