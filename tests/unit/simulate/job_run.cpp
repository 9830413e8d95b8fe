#include "tests/unit/simulate/job_run.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "reader/trace_reader.h"

namespace convtrace::test {
namespace {

using namespace format;

RecordedValue value_of(const TensorStats& event, const Definitions& names) {
  RecordedValue value;
  value.t_ns = event.header.t_ns;
  value.step = event.header.step;
  value.call = event.place.call;
  value.phase = event.place.phase;
  value.scope = names.text(event.place.scope);
  value.slot = names.text(event.slot);
  value.op = names.text(event.op);
  value.collective = event.collective;
  value.storage = event.value.storage;
  value.dtype = event.dtype;
  value.stats = event.stats;
  if (event.dtype == DType::kF32 && event.stats.count <= kMaxWhole) {
    value.whole.resize(event.stats.count);
    std::memcpy(value.whole.data(), event.samples.data(), event.samples.size());
  }
  return value;
}

RecordedRank rank_of(const std::string& path) {
  auto opened = reader::TraceReader::open(path);
  if (!opened.ok()) throw std::runtime_error(path);
  reader::TraceReader& trace = *opened.value();
  const Definitions& names = trace.definitions();
  RecordedRank rank;
  while (const Event* event = trace.next()) {
    rank.last_step = header_of(*event).step;
    if (const auto* call = std::get_if<Collective>(event)) {
      const auto text = [&](StringId id) { return std::string(names.text(id)); };
      rank.calls.push_back({*call,
                            text(call->place.scope),
                            text(call->op),
                            text(call->group),
                            text(call->members),
                            text(call->reduction),
                            {},
                            {}});
    } else if (const auto* stats = std::get_if<TensorStats>(event)) {
      const RecordedValue& value = rank.values.emplace_back(value_of(*stats, names));
      if (value.collective == 0) continue;
      RecordedCall& of = rank.calls.at(value.collective - 1);
      (value.slot.starts_with("sent:") ? of.sent : of.received).push_back(value);
    }
  }
  rank.is_closed = trace.state() == reader::TraceState::kComplete;
  return rank;
}

}  // namespace

RecordedJob job_of(simulate::Options options) {
  const TempDir folder;
  options.output = folder / "job";
  RecordedJob job;
  std::string error;
  if (!simulate::make_job(options, job.result, error)) throw std::runtime_error(error);
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    const std::string path = options.output + "/convtrace-" + std::to_string(rank) + '-' +
                             std::to_string(20000 + rank) + ".ctrace";
    job.ranks.push_back(rank_of(path));
    std::ifstream file(path, std::ios::binary);
    job.files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return job;
}

std::map<MeetingKey, Meeting> meetings_of(const RecordedJob& job) {
  std::map<MeetingKey, Meeting> meetings;
  for (const RecordedRank& rank : job.ranks) {
    for (const RecordedCall& call : rank.calls) {
      const Collective& event = call.event;
      uint32_t source = kNoPeer, destination = kNoPeer;
      if (call.op == "send")
        std::tie(source, destination) = std::pair(event.group_rank, event.peer);
      if (call.op == "recv")
        std::tie(source, destination) = std::pair(event.peer, event.group_rank);
      meetings[{call.group, event.number, source, destination}][event.group_rank] = &call;
    }
  }
  return meetings;
}

double bucket_of(const Stats& stats, size_t bucket) {
  return std::ldexp(double{stats.sketch.bucket[bucket]}, stats.sketch.exponent);
}

}  // namespace convtrace::test
