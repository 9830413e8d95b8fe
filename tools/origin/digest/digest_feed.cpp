#include "tools/origin/digest/digest_feed.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "tools/common/read_stream.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::origin {
namespace {

using tools::read_number;

constexpr const char* kOdd = "the digests are damaged, or of another version of convtrace";

void sort_rows(auto& rows) {
  std::ranges::stable_sort(rows, {}, [](const auto& row) { return row.place; });
}

}  // namespace

tools::Json digest_json() {
  return {{"program", CONVTRACE_VERSION},
          {"tables",
           {table_json<TraceRow>(), table_json<CallRow>(), table_json<ValueRow>(),
            table_json<ParameterRow>(), table_json<BadRow>(), table_json<StepRow>()}}};
}

bool DigestFeed::read_head() {
  std::string magic(kDigestMagic.size(), '\0');
  uint32_t length = 0;
  const std::string own = digest_json().dump();
  if (!in_.read(magic.data(), static_cast<std::streamsize>(magic.size())) ||
      magic != kDigestMagic || !read_number(in_, length) || length != own.size())
    return false;
  std::string text(length, '\0');
  return in_.read(text.data(), static_cast<std::streamsize>(length)) && text == own;
}

bool DigestFeed::read_block(Block& block) {
  uint64_t length = 0;
  return read_number(in_, block.table) && read_number(in_, block.rows) &&
         read_number(in_, block.members) && read_number(in_, length) &&
         tools::read_bytes(in_, length, block.bytes);
}

bool DigestFeed::read_traces(OriginResult& result, std::string& error) {
  for (size_t given = 0; given < paths_.size(); ++given) {
    std::string problem;
    bool any = false;
    for (const TraceRow& trace : traces_) {
      if (trace.given != given) continue;
      if (trace.problem.empty()) {
        any = true;
        continue;
      }
      problem = trace.problem;
      result.incomplete.push_back(problem);
    }
    if (!any) {
      const std::string none = diff::unreadable(paths_[given], "the folder holds no trace");
      error = problem.empty() ? none : problem;
      return false;
    }
    result.paths.push_back(paths_[given]);
  }
  for (size_t i = 0; i < traces_.size(); ++i) {
    const TraceRow& trace = traces_[i];
    if (!trace.problem.empty()) continue;
    ranks_.push_back(trace.facts);
    ranks_.back().number = i;
  }
  choose_one_a_rank(ranks_, result.notes);
  queue_of_.assign(traces_.size(), SIZE_MAX);
  for (size_t i = 0; i < ranks_.size(); ++i) queue_of_[ranks_[i].number] = i;
  return true;
}

bool DigestFeed::open(OriginResult& result, std::string& error) {
  error = kOdd;
  if (!read_head()) return false;
  while (true) {
    if (!read_block(first_)) return false;
    if (first_.table != 0) break;
    TableIn<TraceRow> rows(first_, names_);
    if (!rows.each([&](const TraceRow& row) { traces_.push_back(row); })) return false;
  }
  return read_traces(result, error);
}

template <typename Row>
bool DigestFeed::take_rows(const Block& block, std::vector<Arrived>& arrived,
                           std::vector<Row> Arrived::*rows) {
  TableIn<Row> table(block, names_);
  bool good = true;
  const bool whole = table.each([&](const Row& row) {
    if (row.trace >= queue_of_.size()) {
      good = false;
    } else if (queue_of_[row.trace] != SIZE_MAX) {
      (arrived[queue_of_[row.trace]].*rows).push_back(row);
    }
  });
  return good && whole;
}

bool DigestFeed::take(const Block& block, std::vector<Arrived>& arrived) {
  switch (block.table) {
    case 1:
      return take_rows(block, arrived, &Arrived::calls);
    case 2:
      return take_rows(block, arrived, &Arrived::values);
    case 3:
      return take_rows(block, arrived, &Arrived::parameters);
    case 4:
      return take_rows(block, arrived, &Arrived::bads);
    case 5:
      return take_rows(block, arrived, &Arrived::steps);
    default:
      return false;
  }
}

/// @return whether the rows are consistent with the queue.
bool DigestFeed::append(Arrived& from, RankQueue& to) const {
  sort_rows(from.calls);
  for (CallRow& row : from.calls) {
    if (row.place != to.end()) return false;
    row.call.does = op_of(names_.text(row.call.op));
    row.call.reduces = reduction_of(names_.text(row.call.reduction));
    to.calls.push_back(row.call);
  }
  std::ranges::stable_sort(from.values, {},
                           [](const ValueRow& row) { return std::pair(row.place, row.turn); });
  for (ValueRow& row : from.values) {
    if (row.place < to.base || row.place >= to.end()) return false;
    Call& call = to.at(row.place);
    if (call.done) continue;
    if (row.has_print) row.value.fingerprint = to.fingerprints.add(row.print);
    row.value.next = call.first_value;
    call.first_value = to.values.add(row.value);
  }
  sort_rows(from.parameters);
  for (const ParameterRow& row : from.parameters) to.parameters[row.at_step].push_back(row.seen);
  sort_rows(from.bads);
  for (BadRow& row : from.bads) {
    std::istringstream lines(row.inputs);
    for (std::string line; std::getline(lines, line);) row.bad.inputs.push_back(line);
    to.bads.push_back(std::move(row.bad));
  }
  for (const StepRow& row : from.steps) to.steps[row.at_step] = row.counts;
  return true;
}

void DigestFeed::start(std::span<RankQueue* const> queues) const {
  for (size_t i = 0; i < queues.size(); ++i) {
    const TraceRow& trace = traces_[ranks_[i].number];
    RankQueue& queue = *queues[i];
    queue.complete = trace.complete;
    queue.damaged = trace.damaged;
    queue.closed = trace.closed;
    queue.scaled = trace.scaled;
    queue.sees_modules = trace.sees_modules;
    queue.lost_calls = trace.lost_calls;
    queue.late_values = trace.late_values;
    queue.odd_calls = trace.odd_calls;
    queue.lost = trace.lost;
    queue.value_count = trace.value_count;
  }
}

bool DigestFeed::next(std::span<RankQueue* const> queues, bool& last, std::string& error) {
  error = kOdd;
  if (!std::exchange(started_, true)) start(queues);
  std::vector<Arrived> arrived(queues.size());
  Block block = std::move(first_);
  while (block.table != kWindowEnd) {
    if (!take(block, arrived) || !read_block(block)) return false;
  }
  const uint32_t end = block.rows;
  last = end == UINT32_MAX;
  for (size_t i = 0; i < queues.size(); ++i) {
    RankQueue& queue = *queues[i];
    if (!append(arrived[i], queue)) return false;
    const uint32_t read_step = traces_[ranks_[i].number].read_step;
    queue.read_step = std::min(read_step, end);
    queue.finished = last || read_step <= end;
  }
  return last || read_block(first_);
}

}  // namespace convtrace::origin
