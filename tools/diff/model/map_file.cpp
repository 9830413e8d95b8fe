#include "tools/diff/model/map_file.h"

#include <algorithm>
#include <charconv>

#include "format/settings/toml_file.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"

namespace convtrace::diff {
namespace {

bool add_rank(std::string_view base, const toml::node& cand, DiffRules& rules) {
  uint32_t rank = 0;
  const auto [end, failed] = std::from_chars(base.data(), base.data() + base.size(), rank);
  const auto other = cand.value<uint32_t>();
  if (failed != std::errc() || end != base.data() + base.size() || !other) return false;
  return rules.base_rank.emplace(*other, rank).second;
}

bool add_module(std::string_view base, const toml::node& cand, DiffRules& rules) {
  const auto other = cand.value<std::string>();
  if (!other) return false;
  rules.renames.push_back({std::string(base), *other});
  return true;
}

/// @return what is wrong with the table; empty if nothing is.
std::string read_table(const std::string& path, std::string_view name, const toml::node& node,
                       DiffRules& rules) {
  const toml::table* table = node.as_table();
  const bool ranks = name == "ranks";
  if (table == nullptr || (!ranks && name != "modules")) {
    return settings::at(path, node.source(), "a map has the tables [ranks] and [modules] alone");
  }
  for (const auto& [key, value] : *table) {
    if (!(ranks ? add_rank : add_module)(key.str(), value, rules)) {
      return settings::at(
          path, value.source(),
          ranks ? "takes RANK = RANK, each rank once" : "takes \"PATH\" = \"PATH\"");
    }
  }
  return "";
}

}  // namespace

bool read_map(const std::string& path, DiffRules& rules, std::string& error) {
  std::vector<std::string> problems;
  const auto root = settings::read_toml(path, problems);
  if (root) {
    for (const auto& [name, node] : *root) {
      const std::string problem = read_table(path, name.str(), node, rules);
      if (!problem.empty()) problems.push_back(problem);
    }
  }
  // The longest matching path applies.
  std::ranges::stable_sort(rules.renames, std::ranges::greater(),
                           [](const ScopeRename& rename) { return rename.cand.size(); });
  if (!problems.empty())
    error = numbered(tools::MessageId::kBadMap, tools::escape_text(problems.front()));
  return problems.empty();
}

}  // namespace convtrace::diff
