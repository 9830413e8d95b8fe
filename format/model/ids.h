#pragma once
/// @file ids.h
/// Numbers that stand for things defined once in a trace. 0 always means "none".

#include <compare>
#include <cstdint>
#include <functional>

namespace convtrace::format {

template <typename Tag>
struct Id {
  uint32_t value = 0;

  constexpr explicit operator bool() const { return value != 0; }
  constexpr auto operator<=>(const Id&) const = default;
};

using StringId = Id<struct StringTag>;  ///< an interned text: scope, slot, op, message
using KernelId = Id<struct KernelTag>;  ///< a kernel: mangled name and family
using StackId = Id<struct StackTag>;    ///< a call stack: list of frame texts, innermost first

}  // namespace convtrace::format

template <typename Tag>
struct std::hash<convtrace::format::Id<Tag>> {
  size_t operator()(convtrace::format::Id<Tag> id) const noexcept { return id.value; }
};
