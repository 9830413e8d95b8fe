#include "tools/trace/names/map_file.h"

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

bool add_fused(std::string_view whole, const toml::node& node, DiffRules& rules) {
  const toml::array* list = node.as_array();
  if (list == nullptr || list->empty()) return false;
  std::vector<std::string> parts;
  for (const toml::node& part : *list) {
    const auto text = part.value<std::string>();
    if (!text) return false;
    parts.push_back(*text);
  }
  rules.fused[std::string(whole)] = std::move(parts);
  return true;
}

bool add_moved(std::string_view name, const toml::node& node, DiffRules& rules) {
  const auto other = node.value<std::string>();
  if (!other || name.find('.') == name.npos || other->find('.') == other->npos) return false;
  rules.moved.push_back({*other, std::string(name)});
  return true;
}

bool add_dimensions(std::string_view pattern, const toml::node& node, DiffRules& rules) {
  auto compiled = settings::Pattern::compile(pattern);
  const toml::array* list = node.as_array();
  if (!compiled.ok() || list == nullptr || list->empty()) return false;
  std::vector<size_t> order;
  for (const toml::node& number : *list) {
    const auto dimension = number.value<uint32_t>();
    if (!dimension) return false;
    order.push_back(*dimension);
  }
  std::vector<size_t> sorted = order;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != i) return false;
  rules.dimensions.push_back({std::move(compiled).value(), std::move(order)});
  return true;
}

bool add_reduction(std::string_view pattern, const toml::node& node, DiffRules& rules) {
  constexpr std::pair<std::string_view, Reduction> kWords[] = {
      {"pieces", Reduction::kNone}, {"mean", Reduction::kMean}, {"sum", Reduction::kSum}};
  const auto word = node.value<std::string_view>();
  auto compiled = settings::Pattern::compile(pattern);
  const auto known = std::ranges::find_if(
      kWords, [&word](const auto& entry) { return word == std::optional(entry.first); });
  if (!compiled.ok() || known == std::end(kWords)) return false;
  rules.reductions.push_back({std::move(compiled).value(), known->second});
  return true;
}

/// A table of the file.
struct Table {
  std::string_view name;
  bool (*add)(std::string_view key, const toml::node& value, DiffRules& rules);
  std::string_view takes;
};
constexpr Table kTables[] = {
    {"ranks", add_rank, "takes RANK = RANK, each rank once"},
    {"modules", add_module, "takes \"PATH\" = \"PATH\""},
    {"parameters", add_moved, "takes \"MODULE.NAME\" = \"MODULE.NAME\""},
    {"dimensions", add_dimensions, "takes \"PATTERN\" = [0, 1, ...] in some order"},
    {"fused", add_fused, "takes NAME = [\"NAME\", ...]"},
    {"reduction", add_reduction, "takes \"PATTERN\" = \"mean\", \"sum\" or \"pieces\""}};

/// @return the error in the table; empty if there is none.
std::string read_table(const std::string& path, std::string_view name, const toml::node& node,
                       DiffRules& rules) {
  const toml::table* entries = node.as_table();
  const auto table = std::ranges::find(kTables, name, &Table::name);
  if (entries == nullptr || table == std::end(kTables)) {
    return settings::at(path, node.source(),
                        "a map has the tables [ranks], [modules], [parameters], [fused], "
                        "[reduction] and [dimensions] alone");
  }
  for (const auto& [key, value] : *entries) {
    if (!table->add(key.str(), value, rules))
      return settings::at(path, value.source(), std::string(table->takes));
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
