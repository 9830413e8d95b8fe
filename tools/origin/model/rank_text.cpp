#include "tools/origin/model/rank_text.h"

#include <algorithm>
#include <charconv>

namespace convtrace::origin {
namespace {

/// @return false where `text` is no decimal number alone.
bool parse_number(std::string_view text, uint32_t& number) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

std::optional<std::vector<uint32_t>> parse_ranks(std::string_view text) {
  std::vector<uint32_t> ranks;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t dash = part.find('-');
    uint32_t first = 0, last = 0;
    if (!parse_number(part.substr(0, dash), first)) return std::nullopt;
    last = first;
    if (dash != std::string_view::npos && !parse_number(part.substr(dash + 1), last))
      return std::nullopt;
    if (last < first || last - first >= kMostMembers - ranks.size()) return std::nullopt;
    for (uint64_t rank = first; rank <= last; ++rank) ranks.push_back(static_cast<uint32_t>(rank));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  std::vector<uint32_t> sorted = ranks;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) return std::nullopt;
  return ranks;
}

std::string ranks_text(std::vector<uint32_t> ranks, size_t most_ranges) {
  std::ranges::sort(ranks);
  std::string text;
  size_t ranges = 0;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (ranges++ == most_ranges) return text + " and " + std::to_string(ranks.size() - i) + " more";
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (end - i > 1) text += (end - i > 2 ? "-" : ", ") + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string ranks_named(const std::vector<uint32_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranks_text(ranks);
}

}  // namespace convtrace::origin
