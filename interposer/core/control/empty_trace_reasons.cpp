#include "interposer/core/control/empty_trace_reasons.h"

#include "format/base/count_noun.h"
#include "format/base/log.h"

namespace convtrace::engine {

std::vector<std::string> empty_trace_reasons(const StepsSeen& steps, bool has_context) {
  std::vector<std::string> reasons;
  if (!steps.values && !has_context) {
    reasons.push_back(
        "mode launches records what a GPU runs, and no CUDA context was made in this process; mode "
        "stats takes values on the CPU too");
  }
  if (steps.values && steps.count != 0 && !steps.wanted) {
    reasons.push_back("CONVTRACE_STEPS " + steps.asked + " names none of the " +
                      count_noun(steps.count, "step") + " that ran (" +
                      std::to_string(steps.first) + " to " + std::to_string(steps.last) +
                      "): there are no values in the trace");
  }
  return reasons;
}

namespace {

/// @param what  the setting or rule that names the ranks.
/// @return a message if the job has none of these ranks, on rank 0 only; else "".
std::string trouble_with(const std::string& what, const settings::StepSet& ranks,
                         const Rank& rank) {
  if (rank.rank != 0 || !rank.counted || ranks.any_below(rank.world_size)) return "";
  return what + ' ' + ranks.ranks_text() + " names none of this job's ranks, 0 to " +
         std::to_string(rank.world_size - 1) + "; nothing is traced by it";
}

}  // namespace

bool is_rank_wanted(const std::string& what, const settings::StepSet& ranks, const Rank& rank) {
  if (ranks.contains(rank.rank)) return true;
  const std::string trouble = trouble_with(what, ranks, rank);
  if (!trouble.empty()) log_line(messages::kNothingToTrace, "%s", trouble.c_str());
  return false;
}

std::vector<settings::Rule> rules_of_rank(const std::vector<settings::Rule>& rules,
                                          const Rank& rank) {
  std::vector<settings::Rule> own;
  for (const settings::Rule& rule : rules)
    if (rule.ranks.contains(rank.rank)) own.push_back(rule);
  return own;
}

std::vector<std::string> rules_of_no_rank(const std::vector<settings::Rule>& rules,
                                          const Rank& rank) {
  std::vector<std::string> lines;
  for (const settings::Rule& rule : rules) {
    std::string trouble = trouble_with(rule.where + ": ranks", rule.ranks, rank);
    if (!trouble.empty()) lines.push_back(std::move(trouble));
  }
  return lines;
}

}  // namespace convtrace::engine
