// How fast `convtrace check` reads a training run: rows check.records_per_s and check.rss, JSON on
// stdout.
//
// The trace is of a made-up network: of each layer the input, output and its gradient, two
// parameters with their gradients, and their values after the update, all of them new in each step.
// The file is in the page cache.
//
// usage: bench_check [--quick]

#include <stdlib.h>
#include <sys/resource.h>

#include <string>
#include <string_view>
#include <vector>

#include "format/file/file_sink.h"
#include "format/file/trace_writer.h"
#include "tests/bench/rows.h"
#include "tests/support/temp_dir.h"
#include "tools/check/run.h"

namespace {

using namespace convtrace;
using format::Phase;

constexpr uint32_t kLayers = 100;

struct Kind {
  const char* slot;
  Phase phase;
};
constexpr Kind kValues[] = {
    {"input:0", Phase::kForward},        {"output:0", Phase::kForward},
    {"grad_output:0", Phase::kBackward}, {"grad:weight", Phase::kBackward},
    {"grad:bias", Phase::kBackward},     {"param:weight", Phase::kOptimizer},
    {"param:bias", Phase::kOptimizer},
};
constexpr uint32_t kPerStep = kLayers * std::size(kValues);

/// @return the number of records.
uint64_t write_trace(const std::string& path, uint32_t steps) {
  format::Definitions names;
  auto sink = format::FileSink::create(path.c_str());
  if (!sink.ok()) abort();
  auto writer = format::TraceWriter::create(std::move(sink).value(), {}, names);
  if (!writer.ok()) abort();
  format::TensorStats event;
  event.dtype = format::DType::kF32;
  event.stats.count = event.stats.finite = 4096;
  event.stats.positive = event.stats.negative = 2048;
  event.stats.sketch.exponent = 0;
  uint64_t seq = 0;
  const auto add = [&](uint32_t step, uint32_t layer, const Kind& kind) {
    event.header = {.seq = seq++, .t_ns = seq, .step = step, .thread = 1};
    event.place = {names.intern("layers." + std::to_string(layer)), 0, kind.phase};
    event.slot = names.intern(kind.slot);
    event.stats.hash = seq * 0x9E3779B97F4A7C15u;
    event.stats.l2 = 64 + 1e-6 * static_cast<double>(seq % 1000);
    event.stats.min = format::Scalar::f64(-3);
    event.stats.max = event.stats.amax = format::Scalar::f64(3);
    if (!writer.value()->append(event).ok()) abort();
  };
  for (uint32_t step = 0; step < steps; ++step)
    for (const Kind& kind : kValues)
      for (uint32_t layer = 0; layer < kLayers; ++layer) add(step, layer, kind);
  if (!writer.value()->close().ok()) abort();
  return seq;
}

double seconds_to_check(const std::string& path, uint64_t records) {
  check::CheckResult result;
  std::string error;
  const double seconds = bench::seconds_of([&] {
    if (!check::check_run(
            {path}, [](std::string_view) { return true; }, result, error))
      abort();
  });
  if (result.values != records) abort();
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const test::TempDir folder;
  const std::string path = folder / "run.ctrace";
  const uint64_t records = write_trace(path, (quick ? 1'000'000 : 10'000'000) / kPerStep + 1);
  std::vector<double> speeds;
  for (int i = 0; i < 5; ++i)
    speeds.push_back(1e-6 * static_cast<double>(records) / seconds_to_check(path, records));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  bench::Rows rows;
  rows.print({"check.records_per_s", "M/s", bench::Goal::kAtLeast, 1,
              "absolute, one core: values with statistics, every check"},
             speeds);
  rows.print(
      {"check.rss", "MiB", bench::Goal::kAtMost, 200, "absolute, with the writer of the trace"},
      {static_cast<double>(usage.ru_maxrss) / 1024});
  return 0;
}
