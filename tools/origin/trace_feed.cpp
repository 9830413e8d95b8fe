#include "tools/origin/trace_feed.h"

#include <exception>
#include <utility>

#include "tools/common/on_threads.h"
#include "tools/common/text.h"
#include "tools/origin/read/windows.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::origin {
namespace {

/// A thread that throws would end the program.
void read_to(RankReader& reader, uint32_t step, RankQueue& queue) noexcept {
  try {
    if (!queue.finished) reader.read_to(step, queue);
  } catch (const std::exception&) {
    queue.complete = false;
    queue.damaged = queue.finished = true;
  }
}

}  // namespace

bool TraceFeed::open(OriginResult& result, std::string& error) {
  std::vector<RankFacts> files;
  for (const std::string& path : paths_) {
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
  for (const RankReader& reader : readers_) ranks_.push_back(facts_of(reader));
  ends_ = window_ends(readers_, most_events_);
  return true;
}

bool TraceFeed::next(std::span<RankQueue* const> queues, bool& last, std::string&) {
  const uint32_t end = ends_[window_++];
  tools::on_threads(readers_.size(), threads_,
                    [&](size_t i) { read_to(readers_[i], end, *queues[i]); });
  last = window_ == ends_.size();
  return true;
}

}  // namespace convtrace::origin
