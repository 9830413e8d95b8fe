// What it costs to write and to read events: rows encode.*, decode.* and checksum.vs_memcpy, JSON
// on stdout. The events are those of training_steps.h.
//
// usage: bench_trace [--quick]

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "format/base/checksum.h"
#include "format/trace_writer.h"
#include "reader/trace_reader.h"
#include "tests/bench/event_tables.h"
#include "tests/bench/rows.h"
#include "tests/bench/training_steps.h"
#include "tests/support/memory_sink.h"

namespace {

using namespace convtrace;

constexpr int kSteps = 333;  // a sample: 0.8 million events

struct Encoded {
  double ns_per_event;
  double bytes_per_event;
};

/// Gives the events of kSteps steps to `consume`, a few at a time and just made, so that they are
/// in the cache as they are when the writer thread has unpacked them from its queue.
/// @return seconds that `consume` took, and the number of events.
template <typename Consume>
std::pair<double, size_t> feed(format::Definitions& definitions, const Consume& consume) {
  constexpr size_t kBatch = 64;
  bench::TrainingSteps steps(definitions, 1);
  std::vector<format::Event> batch;
  double seconds = 0;
  size_t count = 0;
  for (size_t launch = 0; launch < kSteps * bench::TrainingSteps::kLaunches;) {
    batch.clear();
    for (; batch.size() < kBatch; ++launch) {
      const auto& events = steps.next();
      batch.insert(batch.end(), events.begin(), events.end());
    }
    seconds += bench::seconds_of([&] {
      for (const format::Event& event : batch) consume(event);
    });
    count += batch.size();
  }
  return {seconds, count};
}

/// Counts what would go to a file.
class CountingSink final : public format::Sink {
 public:
  [[nodiscard]] Status append(Bytes a, Bytes b) noexcept override {
    size_ += a.size() + b.size();
    return kOkStatus;
  }
  [[nodiscard]] uint64_t size() const noexcept override { return size_; }

 private:
  uint64_t size_ = 0;
};

Encoded write_trace() {
  format::Definitions definitions;
  auto writer = format::TraceWriter::create(std::make_unique<CountingSink>(), {}, definitions);
  if (!writer.ok()) std::abort();
  auto [seconds, count] = feed(definitions, [&](const format::Event& event) {
    if (!writer.value()->append(event).ok()) std::abort();
  });
  seconds += bench::seconds_of([&] { (void)writer.value()->close(); });
  return {seconds * 1e9 / static_cast<double>(count),
          static_cast<double>(writer.value()->bytes_written()) / static_cast<double>(count)};
}

/// The same events as tables.
Encoded write_tables() {
  format::Definitions definitions;
  bench::EventTables tables;
  auto [seconds, count] =
      feed(definitions, [&](const format::Event& event) { tables.append(event); });
  seconds += bench::seconds_of([&] { tables.flush(); });
  return {seconds * 1e9 / static_cast<double>(count),
          static_cast<double>(tables.bytes()) / static_cast<double>(count)};
}

void encode_rows(bench::Rows& rows, int pairs) {
  std::vector<double> ns, bytes, time_factor, size_factor;
  (void)write_trace();  // page faults of the first
  for (int i = 0; i < pairs; ++i) {
    const bool first = i % 2 == 0;
    Encoded ours{}, tables{};
    if (first) ours = write_trace();
    tables = write_tables();
    if (!first) ours = write_trace();
    ns.push_back(ours.ns_per_event);
    bytes.push_back(ours.bytes_per_event);
    time_factor.push_back(tables.ns_per_event / ours.ns_per_event);
    size_factor.push_back(tables.bytes_per_event / ours.bytes_per_event);
  }
  using bench::Goal;
  const char* what = "1500-launch steps with allocations, whole trace";
  const char* against = "a FlatBuffers table per event, zstd 1, same events";
  rows.print({"encode.ns_per_event", "ns", Goal::kAtMost, 75, what}, ns);
  rows.print({"encode.bytes_per_event", "bytes", Goal::kAtMost, 6, what}, bytes);
  rows.print({"encode.vs_tables_time", "factor", Goal::kAtLeast, 8, against}, time_factor);
  rows.print({"encode.vs_tables_size", "factor", Goal::kAtLeast, 8, against}, size_factor);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  bench::Rows rows;
  encode_rows(rows, quick ? 15 : 31);
  return 0;
}
