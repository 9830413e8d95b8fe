#pragma once
/// @file python_layout.h
/// The layout of this Python's frames and code objects. It does not come from Python's headers: it is
/// found in memory by frames whose contents Python itself has reported.
///
/// Threads:  pure functions. learn_layout() is for a thread of Python that is inside the known frames.
/// Errors:   learn_layout() reads through the kernel, which rejects unmapped addresses; nullopt where a
///           part is not found, as with Python 3.10 and earlier, whose table of lines differs.
/// Source:   Python 3.11's Include/internal/pycore_frame.h for what there is to find;
///           Objects/locations.md (3.11) for the table of lines.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "interposer/abi/known_frame.h"

namespace convtrace::engine {

/// Offsets in bytes.
struct PythonLayout {
  /// In the thread state: offset of the innermost frame or, with behind_pointer, of a pointer to a
  /// structure.
  size_t frame_in_state = 0;
  std::optional<size_t> behind_pointer;            ///< in that structure: the innermost frame
  size_t code = 0, previous = 0, instruction = 0;  ///< in a frame
  size_t first = 0, file = 0, name = 0, lines = 0, line = 0;  ///< in a code object
  size_t characters = 0;                                      ///< in a text
  uint64_t code_type = 0;                                     ///< address of the type of code
};

/// @param state  the calling thread's PyThreadState.
/// @param known  its innermost frames, in this order.
[[nodiscard]] std::optional<PythonLayout> learn_layout(uint64_t state,
                                                       std::span<const KnownFrame> known);

/// @return the word at `address`, which is known to be readable.
[[nodiscard]] inline uint64_t word_at(uint64_t address) {
  return *reinterpret_cast<const uint64_t*>(address);
}

/// @return the innermost frame of a thread, 0 for none.
[[nodiscard]] uint64_t innermost_frame(const PythonLayout& layout, uint64_t state);

/// @return a text of ASCII; "?" for any other.
[[nodiscard]] std::string text_of_python(const PythonLayout& layout, uint64_t text);

/// @return the line of an instruction, 0 if it has none. @param code  the code object.
[[nodiscard]] uint32_t line_of(const PythonLayout& layout, uint64_t code, uint64_t instruction);

/// @param table  co_linetable; `instruction` in bytes from the first one.
[[nodiscard]] uint32_t line_in(std::span<const unsigned char> table, uint32_t first_line,
                               uint64_t instruction);

}  // namespace convtrace::engine
