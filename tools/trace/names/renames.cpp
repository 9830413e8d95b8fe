#include "tools/trace/names/renames.h"

#include <algorithm>
#include <deque>

namespace convtrace::diff {
namespace {

/// Takes the first part of a path, up to a dot.
std::string_view next_part(std::string_view& path) {
  const size_t dot = std::min(path.find('.'), path.size());
  const std::string_view part = path.substr(0, dot);
  path.remove_prefix(std::min(dot + 1, path.size()));
  return part;
}

}  // namespace

std::optional<std::string> renamed(std::string_view path, std::string_view from,
                                   std::string_view to) {
  std::deque<std::string_view> any;
  while (!from.empty()) {
    const std::string_view wanted = next_part(from);
    if (path.empty()) return std::nullopt;
    const std::string_view part = next_part(path);
    if (wanted == "*") {
      any.push_back(part);
    } else if (wanted != part) {
      return std::nullopt;
    }
  }
  std::string name;
  const auto append = [&name](std::string_view part) {
    name += name.empty() ? "" : ".";
    name += part;
  };
  while (!to.empty()) {
    std::string_view part = next_part(to);
    if (part == "*" && !any.empty()) {
      part = any.front();
      any.pop_front();
    }
    append(part);
  }
  if (!path.empty()) append(path);
  return name;
}

std::optional<std::string> path_in_base(std::string_view cand, std::span<const ScopeRename> rules) {
  for (const ScopeRename& rule : rules) {
    if (auto path = renamed(cand, rule.cand, rule.base)) return path;
  }
  return std::nullopt;
}

FusedNames usual_fused_names() {
  return {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
          {"gate_up_proj", {"gate_proj", "up_proj"}},
          {"qkv", {"q", "k", "v"}},
          {"linear_qkv", {"q_proj", "k_proj", "v_proj"}},
          {"linear_fc1", {"gate_proj", "up_proj"}}};
}

std::string beside(std::string_view path, std::string_view name) {
  const size_t dot = path.rfind('.');
  return std::string(dot == std::string_view::npos ? "" : path.substr(0, dot + 1)) +
         std::string(name);
}

}  // namespace convtrace::diff
