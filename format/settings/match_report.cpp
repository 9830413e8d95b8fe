#include "format/settings/match_report.h"

#include <algorithm>
#include <utility>

#include "format/settings/nearest.h"

namespace convtrace::settings {
namespace {

constexpr size_t kMaxPattern = 64, kMaxName = 256;  // bounds the work at the exit of a process
constexpr size_t kShown = 3;
constexpr size_t kExtraInName = 1, kExtraInPattern = 3, kOtherCase = 1, kOtherLetter = 3;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// A glob similar to the expression: searched anywhere, with `*` for `.*`.
std::string as_glob(std::string_view pattern) {
  if (!pattern.starts_with("re:")) return std::string(pattern);
  std::string glob = "*";
  for (const char c : pattern.substr(3)) {
    if (std::string_view("^$\\()+").find(c) == std::string_view::npos &&
        !(c == '*' && glob.back() == '*'))
      glob += c == '.' ? '?' : c;
    if (glob.ends_with("?*")) glob.erase(glob.size() - 2, 1);
  }
  return glob + '*';
}

size_t cost_of(char pattern, char name) {
  if (pattern == name || pattern == '?') return 0;
  return lower(pattern) == lower(name) ? kOtherCase : kOtherLetter;
}

}  // namespace

size_t pattern_distance(std::string_view pattern, std::string_view name) {
  const std::string glob = as_glob(pattern.substr(0, kMaxPattern));
  name = name.substr(0, kMaxName);
  std::vector<size_t> above(name.size() + 1), row(name.size() + 1);
  for (size_t j = 0; j <= name.size(); ++j) above[j] = j * kExtraInName;
  for (const char c : glob) {
    const bool star = c == '*';
    row[0] = above[0] + (star ? 0 : kExtraInPattern);
    for (size_t j = 1; j <= name.size(); ++j) {
      row[j] = star ? std::min(above[j], row[j - 1])
                    : std::min({above[j - 1] + cost_of(c, name[j - 1]), above[j] + kExtraInPattern,
                                row[j - 1] + kExtraInName});
    }
    above.swap(row);
  }
  return above[name.size()];
}

Notice unmatched(std::string_view where, std::string_view pattern, std::string_view if_none,
                 const SeenNames& seen) {
  std::string text = std::string(where) + ' ' + quoted(pattern) + " matched nothing; ";
  if (seen.names().empty()) return {messages::kUnmatched, text + std::string(if_none)};
  std::vector<std::pair<size_t, const std::string*>> ranked;
  for (const std::string& name : seen.names())
    ranked.emplace_back(pattern_distance(pattern, name), &name);
  const size_t shown = std::min(kShown, ranked.size());
  const auto nearer = [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->size()) < std::pair(b.first, b.second->size());
  };
  std::ranges::stable_sort(ranked, nearer);
  text += "nearest of those that occurred: ";
  for (size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + quoted(*ranked[i].second);
  return {messages::kUnmatched, std::move(text)};
}

}  // namespace convtrace::settings
