#include "tools/diff/verdict/coverage.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "format/model/loss_class.h"
#include "tools/common/complaints.h"
#include "tools/common/text.h"
#include "tools/diff/facts/preflight.h"

namespace convtrace::diff {
namespace {

using tools::MessageId;

/// Adds a reason for a verdict of kIncomplete.
void add_reason(DiffResult& result, MessageId id, const std::string& text) {
  result.incomplete.push_back(tools::numbered(id, text));
}

/// @return whether a recording option differs between the runs.
bool setting_differs(const format::TraceMeta& base, const format::TraceMeta& cand,
                     std::string_view name) {
  return base.fact(name) != cand.fact(name);
}

void add_unread(const StepStream& stream, bool in_cand, DiffResult& result) {
  visit_losses(stream.losses(), [&](format::LossReason reason, uint64_t values) {
    if (class_of(reason) != format::LossClass::kUnread) return;
    auto known = std::ranges::find(result.unread, reason, &Unread::reason);
    if (known == result.unread.end()) known = result.unread.insert(known, {.reason = reason});
    (in_cand ? known->cand : known->base) += values;
  });
}

/// @param other_steps  the runs were asked to record different steps.
void add_incomplete(const std::string& who, const StepStream& stream, bool other_steps,
                    std::optional<uint32_t> last, std::optional<uint32_t> other_last,
                    uint64_t missing, DiffResult& result) {
  if (stream.reader().state() == reader::TraceState::kUnclosed) {
    add_reason(result, MessageId::kUnclosed,
               who + ": the trace was not closed; compared up to its end");
  } else if (stream.reader().state() == reader::TraceState::kDamaged) {
    add_reason(result, MessageId::kDamaged,
               who + ": the trace is damaged; compared without the damaged parts");
  }
  const auto status = stream.reader().meta().fact("exit.status");
  if (status && status != "0") {
    add_reason(result, MessageId::kFailedProgram,
               who + ": the program ended with " + (status->starts_with("SIG") ? "" : "status ") +
                   std::string(*status));
  }
  if (other_steps) {
    // The settings explain it.
  } else if (last && other_last && *last < *other_last) {
    add_reason(result, MessageId::kStepsMissing,
               who + ": ends after step " + std::to_string(*last) +
                   ", the other run goes on to step " + std::to_string(*other_last));
  } else if (missing != 0) {
    add_reason(
        result, MessageId::kStepsMissing,
        who + ": has nothing of " + tools::counted(missing, "step") + " that the other run has");
  }
  for (const std::string& gap : stream.losses().gaps())
    add_reason(result, MessageId::kRecordsLost, who + ": " + gap);
  if (stream.late_values() != 0) {
    add_reason(result, MessageId::kLateValues,
               who + ": " + tools::counted(stream.late_values(), "value") +
                   " came after the end of their step and were not compared");
  }
}

}  // namespace

Coverage::Coverage(const TraceSet& base, const TraceSet& cand, std::span<const RankPair> pairs,
                   DiffResult& result)
    : base_(base), cand_(cand), result_(result) {
  for (const TraceSet* set : {&base, &cand}) {
    result.incomplete.insert(result.incomplete.end(), set->unreadable.begin(),
                             set->unreadable.end());
  }
  add_absent_ranks(pairs);
}

void Coverage::add_one_sided(const RankPair& pair) {
  if (setting_differs(base_.files.front().meta, cand_.files.front().meta,
                      "setting.CONVTRACE_RANKS"))
    return;
  const bool in_base = pair.base >= 0;
  const std::string name = "trace of rank " + std::to_string(pair.rank);
  const std::optional<std::string> present = "present";
  add_entry(result_.preflight,
            {name, in_base ? present : std::nullopt, in_base ? std::nullopt : present});
  add_reason(result_, MessageId::kRankMissing,
             name + " is missing in the " + (in_base ? "candidate" : "baseline"));
}

/// Records ranks of the job that neither folder has, unless the runs were asked to omit them.
void Coverage::add_absent_ranks(std::span<const RankPair> pairs) {
  const auto ranks = base_.files.front().meta.fact("setting.CONVTRACE_RANKS");
  if (!base_.is_folder || !cand_.is_folder || ranks.value_or("all") != "all") return;
  const uint32_t size = std::min(base_.files.front().meta.world_size,  // a smaller one is reported
                                 cand_.files.front().meta.world_size);
  std::set<uint32_t> present;
  for (const RankPair& pair : pairs) present.insert(pair.rank);
  if (present.size() >= size) return;
  add_reason(result_, MessageId::kRankMissing,
             "neither run has a trace of " + tools::counted(size - present.size(), "rank") +
                 " of " + std::to_string(size));
}

void add_gaps(bool of_several, const StepStream& base, const StepStream& cand, RankPart& part) {
  DiffResult& result = part.result;
  const std::string prefix = of_several ? "rank " + std::to_string(part.rank) + ": " : "";
  const std::string base_state = reader::to_string(base.reader().state());
  const std::string cand_state = reader::to_string(cand.reader().state());
  if (base_state != "complete" || cand_state != "complete")
    add_entry(result.preflight, {prefix + "state", base_state, cand_state});
  const bool other_steps =
      setting_differs(base.reader().meta(), cand.reader().meta(), "setting.CONVTRACE_STEPS");
  add_unread(base, false, result);
  add_unread(cand, true, result);
  // If the report proposes an offset of the steps, the ends of the runs are compared with it.
  auto base_last = part.last_base_step;
  auto missing = part.skipped_steps;
  if (const int64_t by = result.root ? result.root->offset.value_or(0) : 0; base_last && by != 0) {
    const int64_t moved = int64_t{*base_last} + by;
    base_last = moved < 0 ? std::nullopt : std::optional(static_cast<uint32_t>(moved));
    missing = {};
  }
  add_incomplete(prefix + "baseline", base, other_steps, base_last, part.last_cand_step, missing[1],
                 result);
  add_incomplete(prefix + "candidate", cand, other_steps, part.last_cand_step, base_last,
                 missing[0], result);
}

void add_gaps_of_wholes(const TraceSet& base_set, const TraceSet& cand_set, const Streams& base,
                        const Streams& cand, const WholeRuns& runs, RankPart& part) {
  DiffResult& result = part.result;
  const bool other_steps = setting_differs(base_set.files.front().meta, cand_set.files.front().meta,
                                           "setting.CONVTRACE_STEPS");
  const auto add_run = [&](const Streams& streams, bool in_cand, std::optional<uint32_t> last,
                           std::optional<uint32_t> other_last, uint64_t missing) {
    for (size_t i = 0; i < streams.size(); ++i) {
      const StepStream& stream = *streams[i];
      const std::string who = "rank " + std::to_string(stream.reader().meta().rank) + ": " +
                              (in_cand ? "candidate" : "baseline");
      add_unread(stream, in_cand, result);
      add_incomplete(who, stream, other_steps, last, other_last, missing, result);
      if (const uint64_t steps = runs.missing_steps(in_cand)[i]; steps != 0) {
        add_reason(
            result, MessageId::kStepsMissing,
            who + ": has nothing of " + tools::counted(steps, "step") + " that other ranks have");
      }
      last.reset();  // the steps of the run, once
      missing = 0;
    }
  };
  add_run(base, false, part.last_base_step, part.last_cand_step, part.skipped_steps[1]);
  add_run(cand, true, part.last_cand_step, part.last_base_step, part.skipped_steps[0]);
  for (const TraceSet* set : {&base_set, &cand_set}) {
    std::set<uint32_t> present;
    for (const TraceFile& file : set->files) present.insert(file.meta.rank);
    const uint32_t size = set->files.front().meta.world_size;
    if (present.size() >= size) continue;
    add_reason(result, MessageId::kRankMissing,
               std::string(set == &cand_set ? "candidate" : "baseline") + ": has no trace of " +
                   tools::counted(size - present.size(), "rank") + " of " + std::to_string(size));
  }
  if (part.hashes_of_pieces != 0) {
    add_reason(result, MessageId::kNotWhole,
               "of " + tools::counted(part.hashes_of_pieces, "value") +
                   " only hashes of pieces are known, and were not compared");
  }
  if (result.wholes->apart.values != 0) {
    add_reason(result, MessageId::kNotWhole,
               tools::counted(result.wholes->apart.values, "value") +
                   " could not be put together from what the ranks hold, and were not compared");
  }
}

}  // namespace convtrace::diff
