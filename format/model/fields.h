#pragma once
/// @file fields.h
/// The building blocks of the lists of fields in events.h, and functions over any of these lists.
///
/// Place:    a kind of event has `fields(event, visit)`, which calls visit(where, name, member) for
///           each member but the header, in the order of the keys of `show --json`. Packing,
///           unpacking, JSON, and the checks of names and texts use it.
/// Threads:  pure functions.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace convtrace::format {

/// How a field is stored: format/FORMAT.md sections 6.2 and 6.6.
enum class Stored : uint8_t {
  kOwn,       ///< by code of its own for the kind
  kFixed,     ///< a column with one row per signature
  kFlag,      ///< one bit of the column "flags", which has one row per signature
  kCount,     ///< like kFixed: the number of elements of a span, whose elements are kOwn
  kVarying,   ///< a column with one row per event
  kCounting,  ///< like kVarying, but stores the difference to the event before
  kField,     ///< a field of a table that is one event
};

/// Where a field is stored: kId is the id in chunk.fbs of its column or field. Place, Device and
/// ValueId have several consecutive ids, of which this is the first.
template <Stored kHow, size_t kId, size_t kBit = 0>
struct Where {};

inline constexpr Where<Stored::kOwn, 0> kOwn;
template <size_t kId>
inline constexpr Where<Stored::kFixed, kId> kFixed;
template <size_t kId, size_t kBit>
inline constexpr Where<Stored::kFlag, kId, kBit> kFlag;
template <size_t kId, size_t kBytes>
inline constexpr Where<Stored::kCount, kId, kBytes> kCount;
template <size_t kId>
inline constexpr Where<Stored::kVarying, kId> kVarying;
template <size_t kId>
inline constexpr Where<Stored::kCounting, kId> kCounting;
template <size_t kId>
inline constexpr Where<Stored::kField, kId> kField;
/// For the list of a member that has fields itself: the distance from that member's first id.
template <size_t kBehind>
inline constexpr Where<Stored::kOwn, kBehind> kPart;

/// A type with a list of fields.
template <typename T>
concept Listed = requires(T value) {
  T::fields(value, [](auto&&...) {});
};

/// Calls visit(where, column, value) for each number, text and span of `event`.
template <typename Event, typename Visit>
constexpr void each_column(Event& event, const Visit& visit) {
  std::remove_const_t<Event>::fields(
      event, [&visit]<Stored kHow, size_t kId, size_t kMore>(
                 Where<kHow, kId, kMore> where, const char* name, auto& member, bool = true) {
        using Member = std::remove_cvref_t<decltype(member)>;
        if constexpr (Listed<Member>) {
          each_column(member, [&visit]<size_t kBehind>(Where<Stored::kOwn, kBehind>,
                                                       const char* part, auto& value) {
            visit(Where<kHow, kId + kBehind>(), part, value);
          });
        } else if constexpr (std::is_array_v<Member>) {
          [&]<size_t... kAxis>(std::index_sequence<kAxis...>) {
            (visit(Where<kHow, kId + kAxis>(), name, member[kAxis]), ...);
          }
          (std::make_index_sequence<std::extent_v<Member>>());
        } else {
          visit(where, name, member);
        }
      });
}

template <typename T>
inline constexpr bool kBorrows = std::is_same_v<T, std::string_view>;
template <typename T>
inline constexpr bool kBorrows<std::span<const T>> = true;

/// Calls visit(member) for each span and text of `event`.
template <typename Event, typename Visit>
constexpr void each_borrowed(Event& event, const Visit& visit) {
  each_column(event, [&visit](auto, const char*, auto& value) {
    if constexpr (kBorrows<std::remove_cvref_t<decltype(value)>>) visit(value);
  });
}

template <typename Borrowed>
constexpr size_t bytes_of_borrowed(const Borrowed& borrowed) {
  return borrowed.size() * sizeof(*borrowed.data());
}

/// How the columns, or fields, of a kind are stored, by their ids.
struct Columns {
  static constexpr size_t kMost = 64;
  size_t ids = 0;
  std::array<Stored, kMost> how{};
  std::array<uint8_t, kMost> place{};  ///< position among the fixed or the varying columns
  size_t fixed = 0, varying = 0;

  [[nodiscard]] constexpr bool is_fixed(size_t id) const {
    return how[id] == Stored::kFixed || how[id] == Stored::kFlag || how[id] == Stored::kCount;
  }
  [[nodiscard]] constexpr bool is_varying(size_t id) const {
    return how[id] == Stored::kVarying || how[id] == Stored::kCounting;
  }
};

/// The same for the columns of `Kind`, without an event.
template <typename Kind, typename Visit>
constexpr void each_column_of(const Visit& visit) {
  const Kind event{};
  each_column(event, visit);
}

template <typename Kind>
constexpr Columns columns_of() {
  Columns columns;
  each_column_of<Kind>([&columns]<Stored kHow, size_t kId, size_t kMore>(Where<kHow, kId, kMore>,
                                                                         const char*, const auto&) {
    if (kHow != Stored::kOwn) columns.how[kId] = kHow;
    columns.ids = std::max(columns.ids, kId + 1);
  });
  for (size_t id = 0; id < columns.ids; ++id) {
    size_t& count = columns.is_fixed(id) ? columns.fixed : columns.varying;
    if (columns.is_fixed(id) || columns.is_varying(id))
      columns.place[id] = static_cast<uint8_t>(count++);
  }
  return columns;
}
template <typename Kind>
inline constexpr Columns kColumns = columns_of<Kind>();

/// True: each event of the kind is stored as a table of its own; false: as a row of columns.
template <typename Kind>
inline constexpr bool kIsTable = kColumns<Kind>.how[0] == Stored::kField;

}  // namespace convtrace::format
