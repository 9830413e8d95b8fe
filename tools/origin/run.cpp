#include "tools/origin/run.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "tools/common/escape.h"
#include "tools/common/on_threads.h"
#include "tools/common/text.h"
#include "tools/diff/read/trace_set.h"
#include "tools/origin/join/engine.h"
#include "tools/origin/judge/trial.h"
#include "tools/origin/model/rank_text.h"
#include "tools/origin/read/rank_reader.h"
#include "tools/origin/read/windows.h"

namespace convtrace::origin {
namespace {

constexpr unsigned kMostThreads = 32;

/// The traces of a job, by rank.
class Traces {
 public:
  explicit Traces(format::Definitions& names) : names_(names) {}

  bool open(const std::vector<std::string>& paths, unsigned threads, OriginResult& result,
            std::string& error) {
    std::vector<diff::TraceFile> files;
    for (const std::string& path : paths) {
      diff::TraceSet set;
      if (!diff::open_trace_set(path, set, error)) return false;
      result.paths.push_back(path);
      result.incomplete.insert(result.incomplete.end(), set.unreadable.begin(),
                               set.unreadable.end());
      for (diff::TraceFile& file : set.files) files.push_back(std::move(file));
    }
    choose(files, result);
    for (const diff::TraceFile& file : files) readers.emplace_back(file.path, names_);
    std::vector<std::string> failures(readers.size());
    tools::on_threads(readers.size(), threads, [&](size_t i) {
      const Status status = readers[i].open();
      if (!status.ok()) failures[i] = diff::unreadable(files[i].path, tools::status_text(status));
    });
    for (const std::string& failure : failures) {
      if (failure.empty()) continue;
      error = failure;
      return false;
    }
    return true;
  }

  std::vector<RankReader> readers;  ///< by rank, ascending

 private:
  /// Of several traces of a rank, as a job has that was started again, the one with most events.
  static void choose(std::vector<diff::TraceFile>& files, OriginResult& result) {
    std::ranges::stable_sort(files, [](const diff::TraceFile& a, const diff::TraceFile& b) {
      return a.meta.rank != b.meta.rank ? a.meta.rank < b.meta.rank
             : a.events != b.events     ? a.events > b.events
                                        : a.path < b.path;
    });
    std::set<uint32_t> known;
    std::erase_if(files, [&](const diff::TraceFile& file) {
      if (known.insert(file.meta.rank).second) return false;
      result.notes.push_back(file.path + " is a further trace of rank " +
                             std::to_string(file.meta.rank) + ": the one with most events is read");
      return true;
    });
  }

  format::Definitions& names_;
};

std::vector<std::unique_ptr<RankQueue>> queues_of(const std::vector<RankReader>& readers,
                                                  OriginResult& result) {
  std::vector<std::unique_ptr<RankQueue>> queues;
  for (const RankReader& reader : readers) {
    queues.push_back(std::make_unique<RankQueue>());
    queues.back()->rank = reader.meta().rank;
    result.ranks.push_back(reader.meta().rank);
    result.traces[reader.meta().rank] = reader.path();
    result.world_size = std::max(result.world_size, reader.meta().world_size);
  }
  return queues;
}

/// A thread that throws would end the program.
void read_to(RankReader& reader, uint32_t step, RankQueue& queue) noexcept {
  try {
    if (!queue.finished) reader.read_to(step, queue);
  } catch (const std::exception&) {
    queue.complete = false;
    queue.damaged = queue.finished = true;
  }
}

uint32_t first_step_of(const std::vector<RankReader>& readers, uint64_t& steps) {
  uint32_t first = UINT32_MAX, last = 0;
  for (const RankReader& reader : readers)
    for (const ChunkSpan& chunk : reader.chunks()) {
      first = std::min(first, chunk.step_begin);
      last = std::max(last, chunk.step_end);
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
                    " took part in collectives and have no trace here: what they sent and "
                    "received is not known, and what needs all members was not judged");
  if (odd != 0)
    notes.push_back(
        tools::counted(odd, "group") + (odd == 1 ? " has" : " have") +
        " members that do not agree on who belongs to it: its values were not compared");
  if (unknown != 0)
    notes.push_back("the members of " + tools::counted(unknown, "group") +
                    " are not recorded: a member that never came is not missed");
}

void note_queues(std::span<const RankQueue* const> queues, const std::vector<RankReader>& readers,
                 OriginResult& result) {
  uint64_t late = 0, odd = 0, lost = 0;
  for (size_t i = 0; i < queues.size(); ++i) {
    late += queues[i]->late_values;
    odd += queues[i]->odd_calls;
    lost += queues[i]->lost;
    result.values += queues[i]->value_count;
    if (!queues[i]->complete) result.incomplete.push_back(diff::not_whole(readers[i].path()));
  }
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
  Traces traces(names);
  if (!traces.open(paths, threads, result, error)) return false;
  std::vector<RankReader>& readers = traces.readers;
  const auto owned = queues_of(readers, result);
  std::vector<RankQueue*> queues;
  std::unordered_map<uint32_t, uint32_t> numbers;
  for (const auto& queue : owned) {
    numbers.emplace(queue->rank, static_cast<uint32_t>(queues.size()));
    queues.push_back(queue.get());
  }
  const std::vector<const RankQueue*> readable(queues.begin(), queues.end());
  Groups groups(names, numbers);
  Job job{.names = names, .queues = readable, .groups = groups};
  for (const RankReader& reader : readers) {
    job.same_hashes &= format::hash_alike(reader.meta(), readers.front().meta());
    job.new_hashes &= format::hashes_anew(reader.meta());
  }
  if (!job.same_hashes)
    result.notes.emplace_back("the traces have hashes of two versions: equality was not judged");
  Trial trial(job, first_step_of(readers, result.steps));
  Engine engine(queues, groups, trial);
  const std::vector<uint32_t> ends = window_ends(readers, limits.most_events);
  for (const uint32_t end : ends) {
    tools::on_threads(readers.size(), threads,
                      [&](size_t i) { read_to(readers[i], end, *queues[i]); });
    const bool last = end == ends.back();
    engine.run(last);
    trial.judge_parameters(queues, last);
  }
  note_members(groups, result, result.notes);
  note_queues(readable, readers, result);
  note_engine(engine, result);
  trial.conclude(result);
  return true;
}

}  // namespace convtrace::origin
