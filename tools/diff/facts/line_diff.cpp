#include "tools/diff/facts/line_diff.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>

namespace convtrace::diff {
namespace {

constexpr size_t kContext = 2;
constexpr size_t kMostCells = size_t{1} << 22;  // of the table; beyond it all lines are replaced

struct Source {
  size_t first = 1;  ///< number of the first line
  std::vector<std::string_view> lines{};
};

Source source_of(std::string_view text) {
  Source source;
  const size_t head = std::min(text.find('\n'), text.size());
  std::from_chars(text.data(), text.data() + head, source.first);
  for (size_t at = head + 1; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    source.lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return source;
}

struct Edit {
  char kind = ' ';
  std::string_view line{};
};

/// @return the shortest sequence of edits, by the table of the longest common subsequence.
std::vector<Edit> edits_of(const std::vector<std::string_view>& a,
                           const std::vector<std::string_view>& b) {
  const size_t most = std::min(a.size(), b.size());
  size_t head = 0, tail = 0;
  while (head < most && a[head] == b[head]) ++head;
  while (tail < most - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const size_t rows = a.size() - head - tail, columns = b.size() - head - tail;
  std::vector<Edit> edits;
  for (size_t i = 0; i < head; ++i) edits.push_back({' ', a[i]});
  std::vector<uint32_t> longest;  // of the lines from (row, column) on
  const size_t width = columns + 1;
  const bool fits = rows < kMostCells / width;
  longest.resize(fits ? (rows + 1) * width : 0);
  if (fits) {
    for (size_t i = rows; i-- > 0;) {
      for (size_t j = columns; j-- > 0;)
        longest[i * width + j] = a[head + i] == b[head + j] ? longest[(i + 1) * width + j + 1] + 1
                                                            : std::max(longest[(i + 1) * width + j],
                                                                       longest[i * width + j + 1]);
    }
  }
  size_t i = 0, j = 0;
  while (i < rows || j < columns) {
    if (fits && i < rows && j < columns && a[head + i] == b[head + j]) {
      edits.push_back({' ', a[head + i]});
      ++i, ++j;
    } else if (i < rows && (j == columns || !fits ||
                            longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      edits.push_back({'-', a[head + i++]});
    } else {
      edits.push_back({'+', b[head + j++]});
    }
  }
  for (size_t k = a.size() - tail; k < a.size(); ++k) edits.push_back({' ', a[k]});
  return edits;
}

}  // namespace

std::vector<std::string> line_diff(std::string_view base, std::string_view cand) {
  const Source a = source_of(base), b = source_of(cand);
  const std::vector<Edit> edits = edits_of(a.lines, b.lines);
  std::vector<std::string> text;
  size_t in_base = a.first, in_cand = b.first;  // numbers of the lines at `at`
  for (size_t at = 0; at < edits.size();) {
    const auto differs = [](const Edit& edit) { return edit.kind != ' '; };
    const auto next =
        std::find_if(edits.begin() + static_cast<std::ptrdiff_t>(at), edits.end(), differs);
    if (next == edits.end()) break;
    const auto found = static_cast<size_t>(next - edits.begin());
    const size_t begin = std::max(at, found - std::min(found, kContext));
    in_base += begin - at;
    in_cand += begin - at;
    size_t end = found, equal = 0;  // a hunk ends behind so many equal lines
    while (end < edits.size() && equal <= 2 * kContext)
      equal = differs(edits[end++]) ? 0 : equal + 1;
    end -= equal - std::min(equal, kContext);
    const size_t head = text.size(), base_before = in_base, cand_before = in_cand;
    text.emplace_back();
    for (size_t k = begin; k < end; ++k) {
      in_base += edits[k].kind != '+';
      in_cand += edits[k].kind != '-';
      text.push_back(edits[k].kind + std::string(edits[k].line));
    }
    text[head] = "@@ -" + std::to_string(base_before) + ',' +
                 std::to_string(in_base - base_before) + " +" + std::to_string(cand_before) + ',' +
                 std::to_string(in_cand - cand_before) + " @@";
    at = end;
  }
  return text;
}

}  // namespace convtrace::diff
