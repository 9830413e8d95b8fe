#pragma once
/// @file text_layout.h
/// Lines of a report that fit a terminal.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::diff {

/// Where the report for people goes.
struct Terminal {
  bool color = false;     ///< ANSI colours may be used
  size_t columns = 0;     ///< 0: no terminal; lines are as long as they are
  bool progress = false;  ///< somebody watches the complaints
};

/// @return how many columns UTF-8 text takes, one for each character.
[[nodiscard]] size_t width_of(std::string_view text);
[[nodiscard]] std::string padded(std::string text, size_t width);
/// Breaks at spaces; words longer than a line stay whole.
/// @param first  columns that the first line has lost already. @param indent  of the other lines.
[[nodiscard]] std::string wrapped(std::string_view text, size_t columns, size_t first,
                                  size_t indent);

/// Rows of cells, a line each. Columns are as wide as their widest cell needs and never touch: two
/// spaces lie between them, one in front of a cell that begins with '|'.
[[nodiscard]] std::vector<std::string> table_lines(
    const std::vector<std::vector<std::string>>& rows);

}  // namespace convtrace::diff
