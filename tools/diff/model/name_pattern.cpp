#include "tools/diff/model/name_pattern.h"

#include <algorithm>
#include <vector>

namespace convtrace::diff {
namespace {

std::vector<std::string_view> parts_of(std::string_view scope) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= scope.size();) {
    const size_t end = std::min(scope.find('.', begin), scope.size());
    parts.push_back(scope.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_number(std::string_view part) {
  return !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
}

std::string joined(const std::vector<std::string_view>& parts) {
  std::string text;
  for (const std::string_view& part : parts) {
    if (&part != parts.data()) text += '.';
    text += part;
  }
  return text;
}

}  // namespace

std::string shape_of(std::string_view scope) {
  auto parts = parts_of(scope);
  for (std::string_view& part : parts) part = is_number(part) ? "*" : part;
  return joined(parts);
}

std::string pattern_of(std::string_view a, std::string_view b) {
  auto parts = parts_of(a);
  const auto others = parts_of(b);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i] == others[i] ? parts[i] : "*";
  return joined(parts);
}

bool NameFamily::add(const std::string& name) {
  pattern = names.empty() ? name : pattern_of(pattern, name);
  return names.insert(name).second;
}

}  // namespace convtrace::diff
