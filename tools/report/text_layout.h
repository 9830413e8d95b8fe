#pragma once
/// @file text_layout.h
/// Lays out lines of a report for the width of a terminal.

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace convtrace::diff {

/// Properties of the stream that gets the report for people.
struct Terminal {
  bool color = false;     ///< ANSI colours may be used
  size_t columns = 0;     ///< 0: no terminal, so lines are not wrapped
  bool progress = false;  ///< error messages go to a terminal, so progress is shown
};

/// @return the properties of this process's standard output and standard error.
[[nodiscard]] Terminal own_terminal();

/// @return the number of columns of a UTF-8 text, one for each character.
[[nodiscard]] size_t width_of(std::string_view text);
[[nodiscard]] std::string padded(std::string text, size_t width);
/// Breaks at spaces; words longer than a line are not split.
/// @param first  columns of the first line that are in use already. @param indent  of the other
/// lines.
[[nodiscard]] std::string wrapped(std::string_view text, size_t columns, size_t first,
                                  size_t indent);

/// @param code  of an ANSI colour, "31;1". @return the text in it, if the terminal has colours.
[[nodiscard]] std::string painted(const Terminal& terminal, std::string_view code,
                                  const std::string& text);
/// @return a label with its text, as one paragraph that is indented as deep as the label is wide;
/// "" if the text is empty.
[[nodiscard]] std::string labelled(const Terminal& terminal, std::string_view label,
                                   const std::string& text);

/// Base of the reports for people.
class TextReport {
 public:
  TextReport(Terminal terminal, std::ostream& out) : terminal_(terminal), out_(out) {}

 protected:
  [[nodiscard]] std::string paint(std::string_view code, const std::string& text) const {
    return painted(terminal_, code, text);
  }
  void headline(std::string_view code, const std::string& text) {
    out_ << paint(code, wrapped(text, terminal_.columns, 0, 2)) << "\n";
  }
  void line(std::string_view label, const std::string& text) {
    out_ << labelled(terminal_, label, text);
  }

  Terminal terminal_;
  std::ostream& out_;
};

/// Formats rows of cells, a line each. A column is as wide as its widest cell. Between columns
/// there are two spaces, or one before a cell that begins with '|'.
[[nodiscard]] std::vector<std::string> table_lines(
    const std::vector<std::vector<std::string>>& rows);

}  // namespace convtrace::diff
