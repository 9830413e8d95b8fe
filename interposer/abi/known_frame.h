#pragma once
/// @file known_frame.h
/// A frame of Python as Python itself tells it, from which interposer/core/memory/python_layout.h
/// learns where this Python keeps what.

#include <cstdint>
#include <string_view>

namespace convtrace {

struct KnownFrame {
  uint64_t code = 0;                  ///< address of its code object
  uint64_t instruction = 0;           ///< f_lasti: bytes from the code's first instruction
  uint64_t file = 0, name = 0;        ///< addresses of co_filename and co_name
  uint64_t lines = 0;                 ///< address of co_linetable
  uint32_t first_line = 0, line = 0;  ///< co_firstlineno, f_lineno
  std::string_view file_text, name_text;
};

}  // namespace convtrace
