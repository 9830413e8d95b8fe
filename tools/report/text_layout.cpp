#include "tools/report/text_layout.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace convtrace::diff {

Terminal own_terminal() {
  Terminal terminal;
  const char* const name = std::getenv("TERM");
  const bool able = name != nullptr && std::string_view(name) != "dumb";
  terminal.progress = able && isatty(STDERR_FILENO) == 1;
  if (isatty(STDOUT_FILENO) != 1) return terminal;
  terminal.color = able && std::getenv("NO_COLOR") == nullptr;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) terminal.columns = size.ws_col;
  return terminal;
}

size_t width_of(std::string_view text) {
  // Bytes of the form 10xxxxxx continue a character.
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(std::string text, size_t width) {
  const size_t taken = width_of(text);
  if (taken < width) text.append(width - taken, ' ');
  return text;
}

std::string wrapped(std::string_view text, size_t columns, size_t first, size_t indent) {
  if (columns == 0) return std::string(text);
  std::string lines;
  size_t at = first;
  bool begins = true;  // the line has only indentation so far
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    const size_t width = width_of(word);
    if (!begins && at + 1 + width > columns) {
      lines += '\n' + std::string(indent, ' ');
      at = indent;
    } else if (!begins) {
      lines += ' ';
      ++at;
    }
    lines += word;
    at += width;
    begins = false;
  }
  return lines;
}

std::string painted(const Terminal& terminal, std::string_view code, const std::string& text) {
  return terminal.color ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
}

std::string labelled(const Terminal& terminal, std::string_view label, const std::string& text) {
  if (text.empty()) return "";
  return std::string(label) + wrapped(text, terminal.columns, label.size(), label.size()) + "\n";
}

std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::vector<std::string> lines;
  for (const std::vector<std::string>& row : rows) {
    std::string text;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += row[i].starts_with('|') ? " " : "  ";
      text += padded(row[i], widths[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    lines.push_back(std::move(text));
  }
  return lines;
}

}  // namespace convtrace::diff
