#pragma once
/// @file build_id.h
/// Finds the build id in a segment of ELF notes. It identifies one build of a library.
///
/// Input:    not trusted: the file may contain anything.
/// Source:   elf(5) "Notes (Nhdr)"; NT_GNU_BUILD_ID.

#include <elf.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "format/base/bytes.h"

namespace convtrace {

/// @param notes      contents of a PT_NOTE segment.
/// @param alignment  p_align of that segment.
/// @return lower-case hexadecimal; empty if there is none.
inline std::string build_id_in(Bytes notes, size_t alignment) {
  alignment = alignment == 8 ? 8 : 4;
  Elf64_Nhdr note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const size_t text = sizeof note + align_up(note.n_namesz, alignment);
    const size_t end = text + align_up(note.n_descsz, alignment);
    if (end > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof "GNU" &&
        std::memcmp(notes.data() + sizeof note, "GNU", sizeof "GNU") == 0) {
      std::string id;
      for (const std::byte byte : notes.subspan(text, note.n_descsz)) {
        constexpr char kDigits[] = "0123456789abcdef";
        id += kDigits[std::to_integer<unsigned>(byte) >> 4];
        id += kDigits[std::to_integer<unsigned>(byte) & 15];
      }
      return id;
    }
    notes = notes.subspan(end);
  }
  return {};
}

}  // namespace convtrace
