#pragma once
/// @file address_list.h
/// Search in the address table's lists of pieces, and copying of a list with a change.
///
/// Threads:  searching: any, see address_table.h; copying: the writer, into a list that no reader
///           has yet.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "cupti/memory/address_slot.h"
#include "cupti/memory/word_pool.h"

namespace convtrace::cupti {

/// Always inlined: the writer calls it twice for each change.
/// @return a bit for each word of a list that as a piece begins at or before `offset`.
[[nodiscard, gnu::always_inline]] inline uint64_t not_behind(const uint64_t* list, size_t words,
                                                             uint64_t offset) {
  const uint64_t bound = Piece(offset, Piece::kMaxOffset, Piece::kMaxRecord).word();
  // Eight words at once, though most lists are shorter: a loop whose end the processor cannot
  // predict costs more. The caller masks out words behind the list.
  const auto eight = [=](const uint64_t* at) {
    const auto bit = [=](size_t i) { return uint64_t{load_word(at + i) <= bound} << i; };
    return bit(0) | bit(1) | bit(2) | bit(3) | bit(4) | bit(5) | bit(6) | bit(7);
  };
  uint64_t bits = eight(list);
  for (size_t i = 8; i < words; i += 8) bits |= eight(list + i) << i;
  return bits;
}

/// @param candidates  of one layer, from not_behind(). Pieces of a layer do not overlap, so the
/// last candidate is the one to look at.
/// @return its position, 0 if there is none.
[[nodiscard]] constexpr size_t last_of(uint64_t candidates) {
  return candidates == 0 ? 0 : static_cast<size_t>(std::bit_width(candidates)) - 1;
}

/// The difference of two lists: one piece removed, one inserted, or both.
struct ListChange {
  size_t out = 0;  ///< position in the old list of the removed piece; 0: none
  size_t in = 0;   ///< position in the new list of the inserted piece
  Piece piece;
};

/// Copies the list without its head. @param words  of the new list.
inline void copy_list(const uint64_t* from, uint64_t* to, size_t words, const ListChange& change) {
  const size_t out = change.out == 0 ? words : change.out;
  for (size_t i = 1; i < words; ++i) {
    size_t old = i - (i > change.in ? 1 : 0);
    old += old >= out ? 1 : 0;
    store_word(to + i, i == change.in ? change.piece.word() : load_word(from + old));
  }
}

}  // namespace convtrace::cupti
