// Of report_parts.h: what one run alone recorded.

#include <algorithm>
#include <set>
#include <span>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/model/name_pattern.h"
#include "tools/diff/report/report_parts.h"

namespace convtrace::diff {

using tools::escape_text;

namespace {

/// What is the same of several ranks, and of modules whose names differ in numbers alone.
struct OneSidedFamily {
  OneSidedGroup all;  ///< `scope` is a pattern
  std::set<std::string> modules;
};

std::vector<OneSidedFamily> families(std::span<const OneSidedGroup> groups) {
  std::vector<OneSidedFamily> found;
  for (const OneSidedGroup& group : groups) {
    const auto is_alike = [&group](const OneSidedFamily& family) {
      const OneSidedGroup& other = family.all;
      return group.in_cand == other.in_cand && group.phase == other.phase && group.op == other.op &&
             group.kernel == other.kernel && group.slot == other.slot &&
             shape_of(group.scope) == shape_of(*family.modules.begin());
    };
    const auto known = std::ranges::find_if(found, is_alike);
    if (known == found.end()) {
      found.push_back({group, {group.scope}});
    } else {
      known->all.scope = pattern_of(known->all.scope, group.scope);
      known->all.values += group.values;
      known->all.first_step = std::min(known->all.first_step, group.first_step);
      known->modules.insert(group.scope);
    }
  }
  return found;
}

}  // namespace

std::string one_sided_text(const RootReport& root) {
  const OneSided& one_sided = root.one_sided_before;
  if (one_sided.count == 0) return "";
  const bool one = one_sided.count == 1;
  return tools::counted(one_sided.count, "value") + " before it " + (one ? "is" : "are") +
         " in one run only, the first in the " + (one_sided.in_cand ? "candidate" : "baseline") +
         ": " + place_text(one_sided.first, false) + ", " + object_text(one_sided.first);
}

std::vector<std::string> one_sided_lines(const DiffResult& result) {
  constexpr size_t kSaid = 6;
  std::vector<std::string> lines;
  const std::vector<OneSidedFamily> all = families(result.one_sided);
  for (const auto& [group, modules] : all) {
    if (lines.size() == kSaid) {
      lines.push_back(tools::count_text(all.size() - kSaid) + " more (--json)");
      break;
    }
    std::string text = std::string(group.in_cand ? "candidate" : "baseline") + ": " +
                       std::string(to_string(group.phase)) + ", " + scope_text(group.scope) + ", ";
    if (!group.op.empty()) text += "op " + escape_text(group.op) + ", ";
    if (!group.kernel.empty()) text += "kernel " + escape_text(group.kernel) + ", ";
    text += escape_text(group.slot) + " (" + tools::counted(group.values, "value");
    if (modules.size() > 1) text += " of " + tools::counted(modules.size(), "module");
    const bool unknown = group.first_step == format::kNoStep;
    text += " from step " + (unknown ? "unknown" : std::to_string(group.first_step)) + " on)";
    lines.push_back(std::move(text));
  }
  return lines;
}

}  // namespace convtrace::diff
