#pragma once
/// @file words.h
/// Converts the members of an event to the 64-bit words of its columns.
///
/// Place:    format/file/columns/ writes them, reader/columns/ reads them.
/// Source:   format/FORMAT.md section 6.

#include <array>
#include <bit>

#include "format/model/events.h"

namespace convtrace::format {

/// @return the word that holds two halves.
constexpr uint64_t pair(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

/// @return the word for a number, an enumerator, an id, or the length of a span.
template <typename T>
constexpr uint64_t word_of(const T& value) {
  if constexpr (std::is_same_v<T, Scalar>) {
    return value.bits;
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(value);
  } else if constexpr (std::is_same_v<T, int16_t>) {  // an exponent; word 0 means none
    return static_cast<uint64_t>(value - Sketch::kNone);
  } else if constexpr (requires { value.value; }) {
    return value.value;
  } else if constexpr (kBorrows<T>) {
    return value.size();
  } else {
    return static_cast<uint64_t>(value);
  }
}

/// The inverse of word_of(), mod 2^bits; for enumerations see Enums. Leaves a span unchanged.
template <typename T>
requires(!std::is_enum_v<T>) constexpr void from_word(T& value, uint64_t word) {
  if constexpr (std::is_same_v<T, Scalar>) {
    value.bits = word;
  } else if constexpr (std::is_same_v<T, double>) {
    value = std::bit_cast<double>(word);
  } else if constexpr (std::is_same_v<T, int16_t>) {
    value = static_cast<int16_t>(static_cast<int64_t>(word & 0xFFFF) + Sketch::kNone);
  } else if constexpr (requires { value.value; }) {
    value.value = static_cast<uint32_t>(word);
  } else if constexpr (!kBorrows<T>) {
    value = static_cast<T>(word);
  }
}

/// The words of an event for its fixed and for its varying columns, each in the order of column
/// ids.
template <typename Kind>
struct Words {
  static constexpr const Columns& kPlaces = kColumns<Kind>;
  std::array<uint64_t, kPlaces.fixed> fixed{};
  std::array<uint64_t, kPlaces.varying> varying{};

  explicit Words(const Kind& event) {
    each_column(event, [this]<Stored kHow, size_t kId, size_t kMore>(
                           Where<kHow, kId, kMore>, const char*, const auto& value) {
      constexpr size_t kPlace = kPlaces.place[kId];
      if constexpr (kHow == Stored::kFlag) {
        fixed[kPlace] |= word_of(value) << kMore;
      } else if constexpr (kHow == Stored::kFixed || kHow == Stored::kCount) {
        fixed[kPlace] = word_of(value);
      } else if constexpr (kHow == Stored::kVarying || kHow == Stored::kCounting) {
        varying[kPlace] = word_of(value);
      }
    });
  }
};

/// @return a row of the column `sketch`. Rotated, so that the exponent is a byte of its own.
constexpr uint64_t bucket_word(float bucket) {
  return std::rotl(std::bit_cast<uint32_t>(bucket), 1);
}
constexpr float bucket_of(uint64_t word) {
  return std::bit_cast<float>(std::rotr(static_cast<uint32_t>(word), 1));
}

}  // namespace convtrace::format
