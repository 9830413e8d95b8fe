#include "tools/origin/run.h"

#include <algorithm>
#include <memory>
#include <set>
#include <thread>
#include <unordered_map>

#include "tools/common/text.h"
#include "tools/origin/join/engine.h"
#include "tools/origin/judge/trial.h"
#include "tools/origin/model/rank_text.h"
#include "tools/origin/trace_feed.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::origin {
namespace {

constexpr unsigned kMostThreads = 32;

std::vector<std::unique_ptr<RankQueue>> queues_of(const std::vector<RankFacts>& ranks,
                                                  OriginResult& result) {
  std::vector<std::unique_ptr<RankQueue>> queues;
  for (const RankFacts& rank : ranks) {
    queues.push_back(std::make_unique<RankQueue>());
    queues.back()->rank = rank.rank;
    result.ranks.push_back(rank.rank);
    result.traces[rank.rank] = rank.path;
    result.world_size = std::max(result.world_size, rank.world_size);
  }
  return queues;
}

uint32_t first_step_of(const std::vector<RankFacts>& ranks, uint64_t& steps) {
  uint32_t first = UINT32_MAX, last = 0;
  for (const RankFacts& rank : ranks) {
    if (!rank.has_steps) continue;
    first = std::min(first, rank.first_step);
    last = std::max(last, rank.last_step);
  }
  steps = first == UINT32_MAX ? 0 : uint64_t{last} - first + 1;
  return first == UINT32_MAX ? 0 : first;
}

void note_members(const Groups& groups, const OriginResult& result,
                  std::vector<std::string>& notes) {
  const std::set<uint32_t> given(result.ranks.begin(), result.ranks.end());
  std::set<uint32_t> missing;
  size_t odd = 0, unknown = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[static_cast<uint32_t>(i)];
    odd += group.odd ? 1 : 0;
    unknown += group.members.empty() && !group.odd ? 1 : 0;
    for (const uint32_t rank : group.members)
      if (!given.contains(rank)) missing.insert(rank);
  }
  if (!missing.empty())
    notes.push_back(ranks_named({missing.begin(), missing.end()}) +
                    " took part in collectives and " + (missing.size() == 1 ? "has" : "have") +
                    " no trace here: what was sent and received there is not known, and "
                    "what needs all members was not judged");
  if (odd != 0)
    notes.push_back(
        tools::counted(odd, "group") + (odd == 1 ? " has" : " have") +
        " members that do not agree on who belongs to it: its values were not compared");
  if (unknown != 0)
    notes.push_back("the members of " + tools::counted(unknown, "group") +
                    " are not recorded: a member that never came is not missed");
}

void note_queues(std::span<const RankQueue* const> queues, const std::vector<RankFacts>& ranks,
                 OriginResult& result) {
  uint64_t late = 0, odd = 0, lost = 0, errors = 0;
  for (size_t i = 0; i < queues.size(); ++i) {
    late += queues[i]->late_values;
    odd += queues[i]->odd_calls;
    lost += queues[i]->lost;
    errors += queues[i]->errors;
    result.values += queues[i]->value_count;
    if (!queues[i]->complete) result.incomplete.push_back(diff::not_whole(ranks[i].path));
  }
  if (errors != 0)
    result.notes.push_back("the traces have " + tools::counted(errors, "error") +
                           " of single ranks, which were not judged: convtrace findings TRACE");
  if (late != 0)
    result.notes.push_back(tools::counted(late, "value") +
                           " came when their collectives had been judged, or belong to none");
  if (odd != 0)
    result.notes.push_back("the ids of " + tools::counted(odd, "collective") +
                           " do not ascend: their values were not judged");
  if (lost != 0)
    result.notes.push_back(tools::counted(lost, "record") + " were lost by the tracer");
}

void note_engine(const Engine& engine, OriginResult& result) {
  result.collectives = engine.collectives();
  result.transfers = engine.transfers();
  result.joined = engine.joined();
  if (engine.alone() > engine.repeated())
    result.notes.push_back(tools::counted(engine.alone() - engine.repeated(), "call") +
                           " could not be joined with those of other ranks: the group, or the "
                           "source of a reception, is not recorded");
  if (engine.repeated() != 0)
    result.notes.push_back(tools::counted(engine.repeated(), "call") +
                           " have a number that its rank had used before in its group: they were "
                           "not judged");
  if (engine.collectives() + engine.transfers() == 0)
    result.notes.emplace_back(
        "the traces have no collectives: what came from another rank is not known");
}

}  // namespace

bool find_origins(const std::vector<std::string>& paths, const Limits& limits, OriginResult& result,
                  std::string& error) {
  const unsigned machine = std::max(1U, std::thread::hardware_concurrency());
  const unsigned threads = std::min(limits.threads == 0 ? machine : limits.threads, kMostThreads);
  format::Definitions names;
  TraceFeed feed(names, threads, limits.most_events);
  if (!feed.open(paths, result, error)) return false;
  const std::vector<RankFacts>& ranks = feed.ranks();
  const auto owned = queues_of(ranks, result);
  std::vector<RankQueue*> queues;
  std::unordered_map<uint32_t, uint32_t> numbers;
  for (const auto& queue : owned) {
    numbers.emplace(queue->rank, static_cast<uint32_t>(queues.size()));
    queues.push_back(queue.get());
  }
  const std::vector<const RankQueue*> readable(queues.begin(), queues.end());
  Groups groups(names, numbers);
  Job job{.names = names, .queues = readable, .groups = groups};
  for (const RankFacts& rank : ranks) {
    job.same_hashes &= rank.new_hashes == ranks.front().new_hashes;
    job.new_hashes &= rank.new_hashes;
  }
  if (!job.same_hashes)
    result.notes.emplace_back("the traces have hashes of two versions: equality was not judged");
  Trial trial(job, first_step_of(ranks, result.steps));
  Engine engine(queues, groups, trial);
  for (bool more = true; more;) {
    more = feed.next(queues);
    engine.run(!more);
    trial.judge_parameters(queues, !more);
  }
  note_members(groups, result, result.notes);
  note_queues(readable, ranks, result);
  note_engine(engine, result);
  trial.conclude(result);
  return true;
}

}  // namespace convtrace::origin
