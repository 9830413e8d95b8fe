// FORMAT.md section 6.7: what two runs that do the same have in common, and what tells them apart.

#include "reader/step_sums.h"

#include <functional>

#include "format/base/checksum.h"
#include "format/file/trace_writer.h"
#include "tests/support/catch.h"
#include "tests/support/memory_sink.h"

namespace convtrace {
namespace {

using namespace format;

/// How one run differs from another that does the same.
struct Run {
  uint64_t first_address = 0x1000;
  uint64_t t_ns = 5;
  uint32_t thread = 1;
  uint64_t stream = 7;
  size_t events_per_chunk = 1000;
  size_t names_before = 0;  ///< other texts, so that ids differ
  bool reversed = false;    ///< order of the layers in a step
  bool closed = true;
  std::function<void(Launch&)> change_launch = [](Launch&) {};
  std::function<void(TensorStats&)> change_stats = [](TensorStats&) {};
};

constexpr uint32_t kSteps = 6, kLayers = 5;

std::vector<std::byte> bytes_of(const Run& run) {
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  Definitions definitions;
  for (size_t i = 0; i < run.names_before; ++i) definitions.intern("x" + std::to_string(i));
  const StringId add = definitions.intern("add"), output = definitions.intern("output:0");
  const KernelId kernel = definitions.intern_kernel({add, add});
  auto writer = TraceWriter::create(std::make_unique<test::MemorySink>(bytes), {}, definitions);
  REQUIRE(writer.ok());
  size_t count = 0;
  uint64_t address = run.first_address, t_ns = run.t_ns;
  const auto append = [&](Event event, uint32_t step) {
    header_of(event) = {.t_ns = t_ns += run.t_ns, .step = step, .thread = run.thread};
    REQUIRE(writer.value()->append(event).ok());
    if (++count % run.events_per_chunk == 0) REQUIRE(writer.value()->flush().ok());
  };
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (uint32_t i = 0; i < kLayers; ++i) {
      const uint32_t layer = run.reversed ? kLayers - 1 - i : i;
      const Operand operand{.address = address += 512, .generation = address / 512};
      Launch launch;
      launch.header.step = step;  // for change_launch
      launch.place.scope = definitions.intern("h." + std::to_string(layer));
      launch.kernel = kernel;
      launch.stream = run.stream;
      launch.operands = std::span(&operand, 1);
      run.change_launch(launch);
      append(launch, step);
      TensorStats stats;
      stats.header.step = step;
      stats.place = launch.place;
      stats.slot = output;
      stats.address = address;
      stats.stats.count = 4;
      stats.stats.hash = step * 100 + layer;
      run.change_stats(stats);
      append(stats, step);
    }
  }
  if (run.closed) {
    REQUIRE(writer.value()->close().ok());
  } else {
    REQUIRE(writer.value()->flush().ok());
  }
  return *bytes;
}

std::vector<StepSums> sums_in(std::vector<std::byte> bytes) {
  const auto opened = reader::TraceContainer::open(
      std::make_unique<reader::MemorySource>(std::move(bytes)), reader::OpenPolicy::kIndexOrScan);
  REQUIRE(opened.ok());
  return reader::load_step_sums(*opened.value());
}

std::vector<StepSums> sums_of(const Run& run) { return sums_in(bytes_of(run)); }

TEST_CASE("step sums: addresses, times, threads, streams, ids, order and chunks do not enter",
          "[reader][format]") {
  const auto sums = sums_of({});
  REQUIRE(sums.size() == kSteps);
  for (uint32_t step = 0; step < kSteps; ++step) {
    CHECK(sums[step].step == step);
    CHECK(sums[step].launches == kLayers);
    CHECK(sums[step].values == kLayers);
  }
  CHECK(sums[0].key_sum == sums[1].key_sum);
  CHECK(sums[0].value_sum != sums[1].value_sum);

  CHECK(sums_of({.first_address = 0x77777000}) == sums);
  CHECK(sums_of({.t_ns = 999}) == sums);
  CHECK(sums_of({.thread = 12, .stream = 0}) == sums);
  CHECK(sums_of({.names_before = 3}) == sums);
  CHECK(sums_of({.reversed = true}) == sums);
  for (const size_t events : {1u, 3u, 7u}) CHECK(sums_of({.events_per_chunk = events}) == sums);
}

TEST_CASE("step sums: one changed hash changes exactly that step's value sum", "[reader]") {
  auto expected = sums_of({});
  const auto changed = sums_of({.change_stats = [&](TensorStats& stats) {
    if (stats.header.step == 3 && stats.stats.hash == 302) stats.stats.hash ^= 1;
  }});
  CHECK(changed[3].value_sum != expected[3].value_sum);
  expected[3].value_sum = changed[3].value_sum;
  CHECK(changed == expected);
}

TEST_CASE("step sums: whatever makes a launch or a value another one changes the key sum",
          "[reader]") {
  const auto base = sums_of({});
  const std::function<void(Launch&)> launch_changes[] = {
      [](Launch& e) { e.place.scope = {}; },
      [](Launch& e) { e.place.call = 1; },
      [](Launch& e) { e.place.phase = Phase::kBackward; },
      [](Launch& e) { e.kernel = {}; },
      [](Launch& e) { e.grid[2] = 2; },
      [](Launch& e) { e.block[0] = 2; },
      [](Launch& e) { e.shared_bytes = 2; },
  };
  for (const auto& change : launch_changes) {
    const auto sums = sums_of({.change_launch = change});
    CHECK(sums[2].key_sum != base[2].key_sum);
  }
  const std::vector<uint64_t> shape = {2, 2};
  const std::function<void(TensorStats&)> stats_changes[] = {
      [](TensorStats& e) { e.place.scope = {}; },
      [](TensorStats& e) { e.place.call = 1; },
      [](TensorStats& e) { e.place.phase = Phase::kLoss; },
      [](TensorStats& e) { e.op = e.slot; },
      [](TensorStats& e) { e.slot = {}; },
      [](TensorStats& e) { e.dtype = DType::kBF16; },
      [](TensorStats& e) { e.extent = Extent::kBlock; },
      [](TensorStats& e) { e.stats.count = 5; },
      [&](TensorStats& e) {
        e.has_shape = true;
        e.shape = shape;
      },
  };
  for (const auto& change : stats_changes) {
    const auto sums = sums_of({.change_stats = change});
    CHECK(sums[2].key_sum != base[2].key_sum);
  }
}

TEST_CASE("step sums: values of one key that change places are told apart", "[reader]") {
  // One scope for all: the occurrence is all that tells the layers' values apart.
  const auto hashes_of = [](uint64_t first, uint64_t second) {
    return [first, second](TensorStats& e) {
      e.place.scope = {};
      if (e.stats.hash == 200) {
        e.stats.hash = first;
      } else if (e.stats.hash == 201) {
        e.stats.hash = second;
      }
    };
  };
  const auto sums = sums_of({.change_stats = hashes_of(1, 2)});
  const auto swapped = sums_of({.change_stats = hashes_of(2, 1)});
  CHECK(sums[2].key_sum == swapped[2].key_sum);
  CHECK(sums[2].value_sum != swapped[2].value_sum);
  CHECK(sums[3] == swapped[3]);
  // Occurrences count on from chunk to chunk.
  CHECK(sums_of({.events_per_chunk = 3, .change_stats = hashes_of(1, 2)}) == sums);
}

TEST_CASE("step sums: many chunks are summed up along the way and once more at the end",
          "[reader][format]") {
  std::vector<std::byte> closed;
  for (const bool is_closed : {true, false}) {
    closed = bytes_of({.events_per_chunk = 1, .closed = is_closed});
    CHECK(sums_in(closed) == sums_of({}));
  }
  // 60 chunks of one event are fewer than 64; a longer trace has a SUMS record on the way.
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  const Definitions definitions;
  auto writer = TraceWriter::create(std::make_unique<test::MemorySink>(bytes), {}, definitions);
  REQUIRE(writer.ok());
  for (uint32_t i = 0; i < 3 * kSumsEvery - 1; ++i) {
    TensorStats stats;
    stats.header.step = i / 10;
    REQUIRE(writer.value()->append(stats).ok());
    REQUIRE(writer.value()->flush().ok());
  }
  const auto unclosed = *bytes;
  REQUIRE(writer.value()->close().ok());
  const auto sums = sums_in(*bytes);
  CHECK(sums_in(unclosed) == sums);
  CHECK(sums.size() == 20);

  const auto opened = reader::TraceContainer::open(std::make_unique<reader::MemorySource>(*bytes),
                                                   reader::OpenPolicy::kIndexOnly);
  REQUIRE(opened.ok());
  std::vector<uint64_t> offsets;
  for (const RecordEntry& entry : opened.value()->records()) {
    if (entry.header.kind == RecordKind::kSums) offsets.push_back(entry.offset);
  }
  REQUIRE(offsets.size() == 3);
  // Whichever is damaged, the sums are had from elsewhere.
  for (const uint64_t offset : offsets) {
    auto damaged = *bytes;
    damaged[offset + kSlotBytes] ^= std::byte{1};
    CHECK(sums_in(damaged) == sums);
    damaged = unclosed;
    if (offset + kSlotBytes < damaged.size()) damaged[offset + kSlotBytes] ^= std::byte{1};
    CHECK(sums_in(damaged) == sums);
  }
}

TEST_CASE("step sums: the key is the one of the specification", "[format]") {
  Definitions definitions;
  TensorStats stats;
  stats.header.step = 1;
  stats.place = {definitions.intern("h.0"), 3, Phase::kBackward};
  stats.slot = definitions.intern("output:0");
  stats.dtype = DType::kF32;
  stats.stats.count = 9;
  stats.stats.hash = 77;
  StepSummer summer(definitions);
  summer.add(stats);
  const auto hash = [](const std::vector<uint64_t>& words) {
    return checksum64(std::as_bytes(std::span(words)));
  };
  const auto text = [](std::string_view t) { return checksum64(convtrace::bytes_of(t)); };
  const uint64_t key =
      hash({1, text("h.0"), 0, 3 | uint64_t{3} << 32, 0, text("output:0"), 2, 9, 0});
  REQUIRE(summer.sums().size() == 1);
  CHECK(summer.sums()[0].key_sum == key);
  CHECK(summer.sums()[0].value_sum == hash({key, 77}));
  summer.add(stats);
  const uint64_t second = hash({key, 1});
  CHECK(summer.sums()[0].key_sum == key + second);
  CHECK(summer.sums()[0].value_sum == hash({key, 77}) + hash({second, 77}));
}

TEST_CASE("step sums: facts enter as specified, but for where code stands", "[format]") {
  Definitions definitions;
  Fact fact;
  fact.header.step = 1;
  fact.scope = definitions.intern("h.0");
  fact.name = definitions.intern("attributes");
  fact.value = "p=0.1";
  StepSummer summer(definitions);
  summer.add(fact);
  const auto text = [](std::string_view t) { return checksum64(convtrace::bytes_of(t)); };
  const std::vector<uint64_t> words = {2, text("h.0"), text("attributes"), text("p=0.1")};
  REQUIRE(summer.sums().size() == 1);
  CHECK(summer.sums()[0].value_sum == checksum64(std::as_bytes(std::span(words))));
  CHECK(summer.sums()[0].key_sum == 0);
  CHECK(summer.sums()[0].values == 0);
  const std::vector<StepSums> before = summer.sums();
  for (const char* name : {"forward", "call"}) {
    fact.name = definitions.intern(name);
    summer.add(fact);
  }
  CHECK(summer.sums() == before);
}

}  // namespace
}  // namespace convtrace
