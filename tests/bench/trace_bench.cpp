// What it costs to write and to read events: rows encode.*, decode.* and checksum.vs_memcpy, JSON
// on stdout. The events are those of training_steps.h.
//
// usage: bench_trace [--quick]

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "format/base/checksum.h"
#include "format/file/trace_writer.h"
#include "reader/event_decoder.h"
#include "reader/payload_reader.h"
#include "reader/trace_container.h"
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

/// A trace of kSteps steps and its EVENTS records.
struct Stored {
  std::unique_ptr<reader::TraceContainer> container;
  std::vector<format::RecordEntry> chunks;
  size_t events = 0;
};

Stored make_stored() {
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  format::Definitions definitions;
  auto writer =
      format::TraceWriter::create(std::make_unique<test::MemorySink>(bytes), {}, definitions);
  if (!writer.ok()) std::abort();
  (void)feed(definitions, [&](const format::Event& event) { (void)writer.value()->append(event); });
  if (!writer.value()->close().ok()) std::abort();
  auto opened = reader::TraceContainer::open(
      std::make_unique<reader::MemorySource>(std::move(*bytes)), reader::OpenPolicy::kIndexOnly);
  if (!opened.ok()) std::abort();
  Stored stored{.container = std::move(opened).value(), .chunks = {}, .events = 0};
  for (const format::RecordEntry& entry : stored.container->records()) {
    if (entry.header.kind != format::RecordKind::kEvents) continue;
    stored.chunks.push_back(entry);
    stored.events += entry.header.item_count;
  }
  return stored;
}

/// Reads the chunks first, first + stride, ... as a reader does: checksum, zstd, verification and
/// every event. Decoders are kept from call to call.
class ChunkReader {
 public:
  explicit ChunkReader(const Stored& stored)
      : stored_(stored), payload_(stored.container->source()) {}

  void read(size_t first, size_t stride) {
    for (size_t i = first; i < stored_.chunks.size(); i += stride) {
      const format::RecordEntry& entry = stored_.chunks[i];
      const Result<Bytes> raw = payload_.read(entry);
      if (!raw.ok() || !decoder_.load(raw.value(), entry.header.item_count).ok()) std::abort();
      size_t count = 0;
      for (auto batch = decoder_.next(); !batch.empty(); batch = decoder_.next())
        count += batch.size();
      if (count != entry.header.item_count) std::abort();
    }
  }

 private:
  const Stored& stored_;
  reader::PayloadReader payload_;
  reader::EventDecoder decoder_;
};

void decode_rows(bench::Rows& rows, int pairs) {
  const Stored stored = make_stored();
  const size_t threads = std::min(4u, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::unique_ptr<ChunkReader>> readers;
  while (readers.size() < threads) readers.push_back(std::make_unique<ChunkReader>(stored));
  const auto one = [&] { return bench::seconds_of([&] { readers[0]->read(0, 1); }); };
  const auto all = [&] {
    return bench::seconds_of([&] {
      std::vector<std::jthread> running;
      for (size_t i = 0; i < threads; ++i) {
        running.emplace_back([&, i] { readers[i]->read(i, threads); });
      }
    });
  };
  (void)one();  // page faults of the first
  (void)all();
  std::vector<double> speed, speedup;
  for (int i = 0; i < pairs; ++i) {
    const bool one_first = i % 2 == 0;
    const double a = one_first ? one() : all(), b = one_first ? all() : one();
    const double single = one_first ? a : b, parallel = one_first ? b : a;
    speed.push_back(static_cast<double>(stored.events) / single * 1e-6);
    speedup.push_back(single / parallel / static_cast<double>(threads));
  }
  using bench::Goal;
  rows.print({"decode.events_per_s", "Mevents/s", Goal::kAtLeast, 50,
              "one core, from stored bytes to events"},
             speed);
  rows.print({"decode.threads", "fraction", Goal::kAtLeast, 0.62,
              "one thread's speed times min(4, cores)"},
             speedup);
}

void checksum_row(bench::Rows& rows, int pairs) {
  const size_t size = size_t{256} << 20;
  std::vector<std::byte> from(size, std::byte{1}), to(size);
  uint32_t sum = 0;
  const auto check = [&] { return bench::seconds_of([&] { sum ^= checksum32(from); }); };
  const auto copy = [&] {
    return bench::seconds_of([&] { std::memcpy(to.data(), from.data(), size); });
  };
  (void)check();
  (void)copy();
  const std::vector<double> ratio = bench::ratios_of(pairs, copy, check);
  if (sum == 1) std::abort();  // so that it is computed
  rows.print({"checksum.vs_memcpy", "fraction", bench::Goal::kAtLeast, 0.8, "memcpy of 256 MiB"},
             ratio);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  bench::Rows rows;
  encode_rows(rows, quick ? 15 : 31);
  decode_rows(rows, quick ? 31 : 101);
  checksum_row(rows, quick ? 15 : 31);
  return 0;
}
