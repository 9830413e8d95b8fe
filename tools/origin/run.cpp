#include "tools/origin/run.h"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <unordered_map>

#include "format/model/definitions.h"
#include "tools/common/on_threads.h"
#include "tools/common/text.h"
#include "tools/origin/join/engine.h"
#include "tools/origin/judge/trial.h"
#include "tools/origin/model/rank_text.h"
#include "tools/origin/read/rank_queue.h"
#include "tools/origin/read/rank_reader.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::origin {
namespace {

constexpr unsigned kMostThreads = 32;

/// Reads the traces of a job window by window, on several threads.
class TraceFeed {
 public:
  /// @param names  of the job; borrowed. @param most_events  of all ranks in a window.
  TraceFeed(format::Definitions& names, unsigned threads, uint64_t most_events)
      : names_(names), threads_(threads), most_events_(most_events) {}

  /// @param paths  traces, or folders of traces.
  /// @param result  gets paths, notes and lines about traces that cannot be read.
  /// @param error  one line, escaped. @return false with `error` set.
  [[nodiscard]] bool open(const std::vector<std::string>& paths, OriginResult& result,
                          std::string& error);
  /// The traces to judge, by rank, ascending; one a rank. Valid after open().
  [[nodiscard]] const std::vector<RankFacts>& ranks() const { return ranks_; }
  /// Appends the next window of steps to the queues, which are in the order of ranks().
  /// @return whether more windows come.
  [[nodiscard]] bool next(std::span<RankQueue* const> queues);

 private:
  format::Definitions& names_;
  unsigned threads_;
  uint64_t most_events_;
  std::vector<RankFacts> ranks_;
  std::vector<RankReader> readers_;  ///< by rank, ascending
  std::vector<uint32_t> ends_;       ///< last steps of windows
  size_t window_ = 0;
};

/// A thread that throws would end the program.
void read_to(RankReader& reader, uint32_t step, RankQueue& queue) noexcept {
  try {
    if (!queue.finished) reader.read_to(step, queue);
  } catch (const std::exception&) {
    queue.complete = false;
    queue.damaged = queue.finished = true;
  }
}

/// Cuts the steps of a job into windows that fit into memory.
/// @param most_events  of all ranks in a window, unless one step has more.
/// @return the last step of each window, ascending; at least one.
std::vector<uint32_t> window_ends(const std::vector<RankReader>& ranks, uint64_t most_events) {
  constexpr uint32_t kSpread = 64;  // steps of one chunk that count one by one
  std::map<uint32_t, uint64_t> events;
  for (const RankReader& rank : ranks)
    for (const ChunkSpan& chunk : rank.chunks()) {
      const uint32_t steps = std::min(chunk.step_end - chunk.step_begin, kSpread - 1) + 1;
      for (uint32_t i = 0; i < steps; ++i) events[chunk.step_begin + i] += chunk.items / steps + 1;
    }
  std::vector<uint32_t> ends;
  uint64_t sum = 0;
  uint32_t last = 0;
  for (const auto& [step, count] : events) {
    if (sum != 0 && sum + count > most_events) {
      ends.push_back(last);
      sum = 0;
    }
    sum += count;
    last = step;
  }
  ends.push_back(UINT32_MAX);
  return ends;
}

/// If a rank has several traces, as after a restart of the job, keeps the one with most events.
/// @param notes  gets a line for each that is left out.
void choose_one_a_rank(std::vector<RankFacts>& traces, std::vector<std::string>& notes) {
  std::ranges::stable_sort(traces, [](const RankFacts& a, const RankFacts& b) {
    return a.rank != b.rank       ? a.rank < b.rank
           : a.events != b.events ? a.events > b.events
                                  : a.path < b.path;
  });
  std::set<uint32_t> known;
  std::erase_if(traces, [&](const RankFacts& trace) {
    if (known.insert(trace.rank).second) return false;
    notes.push_back(trace.path + " is a further trace of rank " + std::to_string(trace.rank) +
                    ": the one with most events is read");
    return true;
  });
}

bool TraceFeed::open(const std::vector<std::string>& paths, OriginResult& result,
                     std::string& error) {
  std::vector<RankFacts> files;
  for (const std::string& path : paths) {
    diff::TraceSet set;
    if (!diff::open_trace_set(path, set, error)) return false;
    result.paths.push_back(path);
    result.incomplete.insert(result.incomplete.end(), set.unreadable.begin(), set.unreadable.end());
    for (const diff::TraceFile& file : set.files)
      files.push_back({.path = file.path, .rank = file.meta.rank, .events = file.events});
  }
  choose_one_a_rank(files, result.notes);
  for (const RankFacts& file : files) readers_.emplace_back(file.path, names_);
  std::vector<std::string> failures(readers_.size());
  tools::on_threads(readers_.size(), threads_, [&](size_t i) {
    const Status status = readers_[i].open();
    if (!status.ok()) failures[i] = diff::unreadable(files[i].path, tools::status_text(status));
  });
  for (const std::string& failure : failures) {
    if (failure.empty()) continue;
    error = failure;
    return false;
  }
  for (const RankReader& reader : readers_) ranks_.push_back(reader.facts());
  ends_ = window_ends(readers_, most_events_);
  return true;
}

bool TraceFeed::next(std::span<RankQueue* const> queues) {
  const uint32_t end = ends_[window_++];
  tools::on_threads(readers_.size(), threads_,
                    [&](size_t i) { read_to(readers_[i], end, *queues[i]); });
  return window_ < ends_.size();
}

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
