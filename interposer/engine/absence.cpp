#include "interposer/engine/absence.h"

#include <cinttypes>

#include "format/base/count_noun.h"
#include "format/base/log.h"

namespace convtrace::engine {

std::vector<std::string> reasons_for_absence(const StepsSeen& steps, bool driver_came) {
  std::vector<std::string> reasons;
  if (!steps.values && !driver_came) {
    reasons.push_back(
        "mode launches records what a GPU runs, and no CUDA driver came up in this process; mode "
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

bool is_rank_wanted(const std::string& what, const settings::StepSet& ranks, const Rank& rank) {
  if (ranks.contains(rank.rank)) return true;
  if (rank.rank == 0 && rank.counted && !ranks.any_below(rank.world_size)) {
    log_line(format::Level::kWarning, "settings",
             "%s %s names none of this job's ranks, 0 to %" PRIu32 "; nothing is traced by it",
             what.c_str(), ranks.ranks_text().c_str(), rank.world_size - 1);
  }
  return false;
}

void keep_own_rules(std::vector<settings::Rule>& rules, const Rank& rank) {
  std::erase_if(rules, [&rank](const settings::Rule& rule) {
    return !is_rank_wanted(rule.where + ": ranks", rule.ranks, rank);
  });
}

}  // namespace convtrace::engine
