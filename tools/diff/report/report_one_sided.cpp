// Functions of report_parts.h for values that only one run recorded, and values divided among
// ranks.

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/model/name_pattern.h"
#include "tools/diff/report/report_parts.h"

namespace convtrace::diff {

using tools::escape_text;

namespace {

/// One-sided groups that differ only by rank, or by the numbers in their modules' names.
struct OneSidedFamily {
  OneSidedGroup first;
  uint64_t values = 0;
  uint32_t first_step = format::kNoStep;
  NameFamily modules{};
};

std::vector<OneSidedFamily> families(std::span<const OneSidedGroup> groups) {
  const auto key_of = [](const OneSidedGroup& g) {
    return std::tuple(g.in_cand, g.phase, g.op, g.kernel, g.slot, shape_of(g.scope));
  };
  std::vector<OneSidedFamily> found;
  std::map<decltype(key_of(groups[0])), size_t> known;
  for (const OneSidedGroup& group : groups) {
    const auto [entry, is_new] = known.try_emplace(key_of(group), found.size());
    if (is_new) found.push_back({.first = group});
    OneSidedFamily& family = found[entry->second];
    family.values += group.values;
    family.first_step = std::min(family.first_step, group.first_step);
    family.modules.add(group.scope);
  }
  return found;
}

/// The first ops from which on the other run has others, without the namespace of torch's own.
std::string ops_text(const std::vector<std::string>& ops, size_t begin) {
  constexpr size_t kSaid = 5;
  constexpr std::string_view kOwn = "aten::";
  std::string text;
  const size_t end = std::min(ops.size(), begin + kSaid);
  for (size_t i = begin; i < end; ++i) {
    const std::string_view op = ops[i];
    text +=
        (i == begin ? "" : ", ") + escape_text(op.starts_with(kOwn) ? op.substr(kOwn.size()) : op);
  }
  if (begin >= ops.size()) return "none";
  return end == ops.size() ? text : text + " and " + std::to_string(ops.size() - end) + " more";
}

}  // namespace

std::vector<std::string> rewritten_lines(const DiffResult& result) {
  constexpr size_t kSaid = 3;
  std::vector<std::string> lines;
  for (const RewrittenModule& module : result.rewritten) {
    const auto parting = std::ranges::mismatch(module.base, module.cand);
    const auto begin = static_cast<size_t>(parting.in1 - module.base.begin());
    lines.push_back(std::string(to_string(module.phase)) + ", " + scope_text(module.scope) +
                    ": the runs execute other ops here" +
                    (begin == 0 ? "" : " after " + tools::counted(begin, "op") + " in common") +
                    ", so single ops could not be compared: " + ops_text(module.base, begin) +
                    " | " + ops_text(module.cand, begin));
  }
  return shortened(std::move(lines), kSaid);
}

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
  std::vector<OneSidedGroup> groups = result.one_sided;
  // The ops of a rewritten module stand in one line of their own (rewritten_lines()).
  std::erase_if(groups, [&result](const OneSidedGroup& group) {
    return !group.op.empty() &&
           std::ranges::any_of(result.rewritten, [&group](const RewrittenModule& module) {
             return module.scope == group.scope && module.phase == group.phase;
           });
  });
  for (const auto& [group, values, first_step, modules] : families(groups)) {
    std::string text = std::string(group.in_cand ? "candidate" : "baseline") + ": " +
                       std::string(to_string(group.phase)) + ", " + scope_text(modules.pattern) +
                       ", ";
    if (!group.op.empty()) text += "op " + escape_text(group.op) + ", ";
    if (!group.kernel.empty())
      text += "kernel " + escape_text(tools::kernel_title(group.kernel)) + ", ";
    text += escape_text(group.slot) + " (" + tools::counted(values, "value");
    if (modules.names.size() > 1) text += " of " + tools::counted(modules.names.size(), "module");
    const bool unknown = first_step == format::kNoStep;
    text += " from step " + (unknown ? "unknown" : std::to_string(first_step)) + " on)";
    lines.push_back(std::move(text));
  }
  return shortened(std::move(lines), kSaid);
}

std::string passes_text(const DiffResult& result) {
  const auto parted = [](const StepSummary& one) { return one.parted != Parted::kNothing; };
  const auto first = std::ranges::find_if(result.summaries, parted);
  if (first == result.summaries.end()) return "";
  const auto steps = static_cast<uint64_t>(std::count_if(first, result.summaries.end(), parted));
  const bool paired = std::any_of(first, result.summaries.end(), [&parted](const StepSummary& one) {
    return parted(one) && one.base_loss;
  });
  return tools::count_text(first->base_passes) + " | " + tools::count_text(first->cand_passes) +
         " backward passes in step " + std::to_string(first->step) +
         (steps > 1 ? ", and unlike numbers in " + tools::counted(steps - 1, "further step") : "") +
         (paired ? ": losses were paired by value, and " : ": losses have no partner, and ") +
         (first->parted == Parted::kCalls
              ? "what single calls and passes compute was not compared, since the step's data are "
                "divided otherwise"
              : "what single passes compute was not compared");
}

std::vector<std::string> whole_lines(const DiffResult& result) {
  constexpr size_t kSaid = 6;
  if (!result.wholes) return {};
  const Wholes& wholes = *result.wholes;
  const auto ranks = [](size_t number) { return tools::counted(number, "rank"); };
  std::vector<std::string> lines = {"put together from " + ranks(wholes.base_ranks) +
                                    " of the baseline and " + ranks(wholes.cand_ranks) +
                                    " of the candidate"};
  if (wholes.summed != 0) {
    lines.push_back(
        tools::counted(wholes.summed, "value") +
        " of which ranks hold unlike tensors in full taken for sums of these, which are "
        "nearer to the other run's than each of them");
  }
  for (const ApartValue& value : wholes.apart.list) {
    lines.push_back(
        "not compared: " + std::string(to_string(value.phase)) + ", " + scope_text(value.scope) +
        ", " + (value.op.empty() ? "" : "op " + escape_text(value.op) + ", ") +
        escape_text(value.slot) + ": " + value.why + " (" + tools::counted(value.values, "value") +
        " from step " + std::to_string(value.first_step) + " on)");
  }
  return shortened(std::move(lines), 1 + kSaid);
}

}  // namespace convtrace::diff
