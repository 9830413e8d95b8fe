#include "tools/weights/names_file.h"

#include <algorithm>

#include "format/settings/toml_file.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"

namespace convtrace::weights {
namespace {

bool add_module(std::string_view from, const toml::node& node, Names& names) {
  const auto to = node.value<std::string>();
  if (to) names.modules.emplace_back(from, *to);
  return to.has_value();
}

bool add_fused(std::string_view whole, const toml::node& node, Names& names) {
  const toml::array* list = node.as_array();
  if (list == nullptr || list->empty()) return false;
  std::vector<std::string> parts;
  for (const toml::node& part : *list) {
    const auto text = part.value<std::string>();
    if (!text) return false;
    parts.push_back(*text);
  }
  names.fused[std::string(whole)] = std::move(parts);
  return true;
}

/// @return what is wrong with the table; empty if nothing is.
std::string read_table(const std::string& path, std::string_view name, const toml::node& node,
                       Names& names) {
  const toml::table* table = node.as_table();
  const bool fused = name == "fused";
  if (table == nullptr || (!fused && name != "modules"))
    return settings::at(path, node.source(), "a map has the tables [modules] and [fused] alone");
  for (const auto& [key, value] : *table) {
    if (!(fused ? add_fused : add_module)(key.str(), value, names)) {
      return settings::at(path, value.source(),
                          fused ? "takes NAME = [\"NAME\", ...]" : "takes \"PATH\" = \"PATH\"");
    }
  }
  return "";
}

}  // namespace

bool read_names(const std::string& path, Names& names, std::string& error) {
  std::vector<std::string> problems;
  const auto root = settings::read_toml(path, problems);
  if (root) {
    for (const auto& [name, node] : *root) {
      const std::string problem = read_table(path, name.str(), node, names);
      if (!problem.empty()) problems.push_back(problem);
    }
  }
  // The longest matching path applies.
  std::ranges::stable_sort(names.modules, std::ranges::greater(),
                           [](const auto& pair) { return pair.first.size(); });
  if (!problems.empty())
    error = numbered(tools::MessageId::kBadMap, tools::escape_text(problems.front()));
  return problems.empty();
}

}  // namespace convtrace::weights
