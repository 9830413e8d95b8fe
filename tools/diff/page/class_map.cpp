#include "tools/diff/page/class_map.h"

#include <algorithm>

namespace convtrace::diff {
namespace {

std::string runs(const std::vector<uint8_t>& cells) {
  std::string text;
  for (size_t at = 0; at < cells.size();) {
    size_t end = at;
    while (end < cells.size() && cells[end] == cells[at]) ++end;
    text += cells[at] == 0 ? '-' : static_cast<char>('a' + cells[at] - 1);
    text += std::to_string(end - at);
    at = end;
  }
  return text;
}

void halve(std::vector<uint8_t>& cells) {
  for (size_t i = 0; 2 * i < cells.size(); ++i) {
    cells[i] = std::max(cells[2 * i], 2 * i + 1 < cells.size() ? cells[2 * i + 1] : uint8_t{0});
  }
  cells.resize((cells.size() + 1) / 2);
}

}  // namespace

void ClassMap::add(uint32_t scope, uint32_t step, Class verdict) {
  if (scope >= lines_.size()) lines_.resize(scope + 1);
  std::vector<uint8_t>& line = lines_[scope];
  if (step >= line.size()) line.resize(step + 1);
  line[step] = std::max(line[step], static_cast<uint8_t>(1 + static_cast<uint8_t>(verdict)));
}

tools::Json ClassMap::json(size_t limit) const {
  std::vector<std::vector<uint8_t>> lines = lines_;
  std::vector<std::string> texts(lines.size());
  for (uint64_t steps = 1;; steps *= 2) {
    size_t bytes = 0;
    size_t longest = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      texts[i] = runs(lines[i]);
      bytes += texts[i].size();
      longest = std::max(longest, lines[i].size());
    }
    if (bytes <= limit || longest <= 1) return {{"steps_per_cell", steps}, {"lines", texts}};
    std::ranges::for_each(lines, halve);
  }
}

}  // namespace convtrace::diff
