#include "format/settings/nearest.h"

#include <algorithm>
#include <vector>

namespace convtrace::settings {
namespace {

constexpr size_t kMaxCompared = 128;  // names are short; a longer word is no typing error
constexpr size_t kMaxQuoted = 80;

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kMaxCompared);
  b = b.substr(0, kMaxCompared);
  // Damerau-Levenshtein, optimal string alignment: three rows are enough for swaps.
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (same ? 0u : 1u)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(previous);
    previous.swap(row);
  }
  return previous[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, word.size() / 2) + 1;
  for (const std::string_view candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> candidates,
                       std::string_view otherwise) {
  const std::string_view near = nearest(word, candidates);
  return near.empty() ? std::string(otherwise) : "the nearest is " + std::string(near);
}

std::string one_line(std::string_view text) {
  std::string result(text);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  std::replace_if(result.begin(), result.end(), is_control, '?');
  return result;
}

std::string quoted(std::string_view text) {
  return '"' + one_line(text.substr(0, kMaxQuoted)) + (text.size() > kMaxQuoted ? "...\"" : "\"");
}

}  // namespace convtrace::settings
