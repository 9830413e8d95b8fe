/// Time of the statistics kernel and of stored values on a GPU, against CUB, copies and an empty
/// kernel in the same run. Times are of the stream, between two events; ratios are medians of
/// alternating pairs.
///
/// usage: gpu_stats_bench [--rate|--once]
///
/// --rate: only the row stats.gpu.f32_rate. --once: each kind of work twice, for a profiler; nothing is
/// printed.
/// Prints a JSON list of rows, as the programs of tests/bench. Exit code 77: no device.

#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "cupti/values/device_stats.h"
#include "tests/bench/rows.h"
#include "tests/gpu/programs/baselines.h"

namespace convtrace {
namespace {

using bench::Goal;
using cupti::DeviceRequest;
using format::Capture;
using format::DType;
using Work = std::function<void()>;

constexpr int kNoDevice = 77;
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kLarge = 256 * kMiB;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

/// Takes stored values and throws them away.
class Discard final : public cupti::ValueSink {
 public:
  bool has(const format::TensorStats&) noexcept override { return false; }
  Begun begin(const format::TensorStats& event) noexcept override {
    return {std::make_unique<Incoming>(event.bytes), false};
  }
  bool refuse() noexcept override {
    ++refused;
    return true;
  }
  int refused = 0;

 private:
  class Incoming final : public cupti::IncomingValue {
   public:
    explicit Incoming(uint64_t bytes) : left_(bytes), part_(format::kPartBytes) {}
    std::span<std::byte> next() noexcept override {
      return std::span(part_).first(std::min<uint64_t>(left_, part_.size()));
    }
    void filled() noexcept override { left_ -= std::min<uint64_t>(left_, part_.size()); }

   private:
    uint64_t left_;
    std::vector<std::byte> part_;
  };
};

/// A context with everything that is measured.
class Bench {
 public:
  explicit Bench(const cupti::DriverApi& driver) : stats_(driver, sink_, 8, &values_, 2 * kLarge) {
    check(cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (CUevent* event : {&begin_, &end_}) check(cuEventCreate(event, 0), "cuEventCreate");
    for (CUdeviceptr* buffer : {&data_, &other_}) check(cuMemAlloc(buffer, kLarge), "cuMemAlloc");
    require(stats_.submit(context_, {}, stream_, 20 * kSecondNs) == format::SampleOutcome::kSampled,
            "preparing the context");
  }
  ~Bench() { stats_.forget(context_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  enum class Fill { kNormal, kPositive, kNaN, kSubnormal };

  void fill(DType dtype, Fill fill = Fill::kNormal) {
    std::vector<float> pool(1 << 20);
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (float& value : pool) {
      value = fill == Fill::kNaN         ? std::numeric_limits<float>::quiet_NaN()
              : fill == Fill::kSubnormal ? 1e-40f * normal(random)
              : fill == Fill::kPositive  ? 1 + std::fabs(normal(random))
                                         : normal(random);
    }
    std::vector<std::byte> bytes(pool.size() * sizeof(float));
    const uint32_t size = std::min(4u, format::element_bytes(dtype));
    for (size_t i = 0; i < bytes.size() / size; ++i) {
      std::memcpy(&bytes[i * size],
                  reinterpret_cast<const std::byte*>(&pool[i % pool.size()]) + 4 - size, size);
    }
    for (uint64_t at = 0; at < kLarge; at += bytes.size())
      check(cuMemcpyHtoD(data_ + at, bytes.data(), bytes.size()), "cuMemcpyHtoD");
  }

  [[nodiscard]] DeviceRequest request(DType dtype, uint64_t offset, uint64_t bytes,
                                      Capture capture = Capture::kStats) const {
    DeviceRequest request;
    const CUdeviceptr address = data_ + offset;
    request.view = stats::dense_view(reinterpret_cast<const void*>(address), dtype,
                                     bytes / format::element_bytes(dtype));
    request.event.dtype = dtype;
    request.event.capture = capture;
    request.event.address = address;
    request.event.bytes = bytes;
    return request;
  }
  Work stats_of(std::vector<DeviceRequest> batch) {
    return [this, batch = std::move(batch)] {
      require(stats_.submit(context_, batch, stream_) == format::SampleOutcome::kSampled, "submit");
    };
  }
  Work stats_of(DType dtype, uint64_t bytes) { return stats_of({request(dtype, 0, bytes)}); }
  Work sum_of(DType dtype, uint64_t bytes) {
    const auto sum = dtype == DType::kF32   ? baseline_sum_f32
                     : dtype == DType::kF64 ? baseline_sum_f64
                                            : baseline_sum_i32;
    return [this, sum, bytes] {
      require(sum(reinterpret_cast<const void*>(data_), bytes, stream_) == 0, "cub");
    };
  }
  Work nothing() {
    return [this] { require(baseline_nothing(stream_) == 0, "the empty kernel"); };
  }
  Work device_copy(uint64_t bytes) {
    return [this, bytes] {
      check(cuMemcpyDtoDAsync(other_, data_, bytes, stream_), "cuMemcpyDtoDAsync");
    };
  }

  /// @return seconds of the stream, which is busy while the host submits; what came out is thrown away.
  double time(const Work& work) {
    constexpr uint64_t kSubmissionNs = 500'000;  // of a thousand tensors: 290 us on a Xeon at 2 GHz
    require(baseline_wait(kSubmissionNs, stream_) == 0, "the kernel that waits");
    check(cuEventRecord(begin_, stream_), "cuEventRecord");
    work();
    require(cuEventQuery(begin_) == CUDA_ERROR_NOT_READY || is_profiled_, "submitting in time");
    check(cuEventRecord(end_, stream_), "cuEventRecord");
    check(cuEventSynchronize(end_), "cuEventSynchronize");
    settle();
    float milliseconds = 0;
    check(cuEventElapsedTime(&milliseconds, begin_, end_), "cuEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }
  /// Until no value is under way.
  void settle() {
    do {
      uint64_t room = UINT64_MAX;
      stats_.collect(room);
    } while (stats_.values_under_way() > 0);
  }
  /// Submissions may take any time: nothing is measured.
  void profile() { is_profiled_ = true; }
  [[nodiscard]] CUdeviceptr data() const { return data_; }
  [[nodiscard]] CUstream stream() const { return stream_; }
  [[nodiscard]] int refused() const { return values_.refused; }

 private:
  /// What a trace would get.
  class Nowhere final : public format::EventSink {
   public:
    void emit(const format::Event&) noexcept override {}
  };

  Nowhere sink_;
  Discard values_;
  cupti::DeviceStats stats_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
  CUdeviceptr data_ = 0, other_ = 0;
  bool is_profiled_ = false;
};

/// @return times of `a` over those of `b`, in alternating order; the first pair warms up.
std::vector<double> ratios(Bench& bench, const Work& a, const Work& b, int pairs) {
  std::vector<double> found;
  for (int i = 0; i <= pairs; ++i) {
    double first = 0, second = 0;
    if (i % 2 == 0) first = bench.time(a);
    second = bench.time(b);
    if (i % 2 != 0) first = bench.time(a);
    if (i > 0) found.push_back(first / second);
  }
  return found;
}

void types(bench::Rows& rows, Bench& bench, int pairs) {
  struct Case {
    DType dtype;
    const char* name;
    double goal;
  };
  constexpr Case kCases[] = {
      {DType::kF32, "stats.gpu.f32", 1.10},       {DType::kF64, "stats.gpu.f64", 1.10},
      {DType::kI32, "stats.gpu.i32", 1.10},       {DType::kBF16, "stats.gpu.bf16", 1.10},
      {DType::kF16, "stats.gpu.f16", 1.10},       {DType::kF8E4M3FN, "stats.gpu.f8e4m3fn", 1.25},
      {DType::kF8E5M2, "stats.gpu.f8e5m2", 1.25}, {DType::kI8, "stats.gpu.i8", 1.25}};
  for (const Case& one : kCases) {
    bench.fill(one.dtype);
    rows.print(
        {one.name, "ratio", Goal::kAtMost, one.goal,
         "cub::DeviceReduce::Sum of the same 256 MiB (narrow types: as i32)"},
        ratios(bench, bench.stats_of(one.dtype, kLarge), bench.sum_of(one.dtype, kLarge), pairs));
  }
  bench.fill(DType::kF32, Bench::Fill::kPositive);
  rows.print(
      {"stats.gpu.f32_one_sign", "ratio", Goal::kAtMost, 1.10,
       "cub::DeviceReduce::Sum of the same 256 MiB; values above 1, deviations from the first"},
      ratios(bench, bench.stats_of(DType::kF32, kLarge), bench.sum_of(DType::kF32, kLarge), pairs));
}

/// What a launch costs beside its bytes: both tensors have as many tiles and groups.
void tail(bench::Rows& rows, Bench& bench, int pairs) {
  bench.fill(DType::kF32);
  const Work half = bench.stats_of(DType::kF32, kLarge / 2),
             whole = bench.stats_of(DType::kF32, kLarge);
  std::vector<double> microseconds;
  for (int i = 0; i <= pairs; ++i) {
    const double seconds = 2 * bench.time(half) - bench.time(whole);
    if (i > 0) microseconds.push_back(seconds * 1e6);
  }
  rows.fact("stats.gpu.tail_us", "us",
            "twice 128 MiB less 256 MiB: one submission, 2048 tiles found and merged",
            microseconds);
}

void rate(bench::Rows& rows, Bench& bench, int pairs) {
  bench.fill(DType::kF32);
  std::vector<double> rates;
  for (int i = 0; i <= pairs; ++i) {
    const double seconds = bench.time(bench.stats_of(DType::kF32, kLarge));
    if (i > 0) rates.push_back(static_cast<double>(kLarge) / 1e12 / seconds);
  }
  rows.print({"stats.gpu.f32_rate", "TB/s", Goal::kAtLeast, 3.0, "256 MiB; the goal is an H100's"},
             rates);
}

/// Against what memory itself allows.
void memory(bench::Rows& rows, Bench& bench, int pairs) {
  const Work copy = bench.device_copy(kLarge);
  rows.print({"stats.gpu.f32_vs_copy", "ratio", Goal::kAtMost, 0.5,
              "256 MiB read over a device copy of them, which reads and writes"},
             ratios(bench, bench.stats_of(DType::kF32, kLarge), copy, pairs));
  const Work few = bench.stats_of(DType::kF32, 16 * kMiB);
  std::vector<double> hot;
  for (int i = 0; i <= pairs; ++i) {
    (void)bench.time(copy);  // pushes the first bytes out of the cache
    const double cold = bench.time(few);
    const double again = bench.time(few);
    if (i > 0) hot.push_back(again / cold);
  }
  rows.print({"stats.gpu.cached", "ratio", Goal::kAtMost, 1.0,
              "16 MiB that the GPU's cache holds over 16 MiB that it does not"},
             hot);
}

void shapes(bench::Rows& rows, Bench& bench, int pairs) {
  bench.fill(DType::kF32);
  std::vector<DeviceRequest> many;
  for (uint64_t i = 0; i < 1000; ++i)
    many.push_back(bench.request(DType::kF32, i * 64 * 1024, 64 * 1024));
  rows.print({"stats.gpu.batch", "ratio", Goal::kAtMost, 1.5, "1000 x 64 KiB over one of 64 MiB"},
             ratios(bench, bench.stats_of(many), bench.stats_of(DType::kF32, 64 * kMiB), pairs));
  many.clear();
  for (uint64_t i = 0; i < 1000; ++i) many.push_back(bench.request(DType::kF32, i * 4096, 4096));
  const Work thousand = bench.stats_of(many);
  std::vector<double> microseconds;
  for (int i = 0; i <= pairs; ++i) {
    const double seconds = bench.time(thousand);
    if (i > 0) microseconds.push_back(seconds * 1e6);
  }
  rows.print(
      {"stats.gpu.thousand_us", "us", Goal::kAtMost, 30, "1000 x 4 KiB; the goal is an H100's"},
      microseconds);
  std::vector<double> nanoseconds;
  for (int i = 0; i <= pairs; ++i) {
    const double seconds = bench::seconds_of(thousand);
    bench.settle();
    if (i > 0) nanoseconds.push_back(seconds * 1e9 / static_cast<double>(many.size()));
  }
  rows.fact("stats.gpu.submit_ns", "ns", "the host's time for one of 1000 tensors of a submission",
            nanoseconds);
  rows.print({"stats.gpu.small", "ratio", Goal::kAtMost, 1.5, "4 KiB over an empty kernel"},
             ratios(bench, bench.stats_of(DType::kF32, 4096), bench.nothing(), pairs));
  std::vector<double> plain;
  for (int i = 0; i < pairs; ++i) plain.push_back(bench.time(bench.stats_of(DType::kF32, kLarge)));
  const double numbers = bench::median_of(plain);
  const auto of = [&](Bench::Fill fill) {
    bench.fill(DType::kF32, fill);
    std::vector<double> found;
    for (int i = 0; i < pairs; ++i)
      found.push_back(bench.time(bench.stats_of(DType::kF32, kLarge)) / numbers);
    return found;
  };
  rows.print({"stats.gpu.nan", "ratio", Goal::kAtMost, 6, "256 MiB of NaN over numbers"},
             of(Bench::Fill::kNaN));
  rows.print(
      {"stats.gpu.subnormal", "ratio", Goal::kAtMost, 6, "256 MiB of subnormals over numbers"},
      of(Bench::Fill::kSubnormal));
}

void values(bench::Rows& rows, Bench& bench, int pairs) {
  bench.fill(DType::kF32);
  const auto store = bench.stats_of({bench.request(DType::kF32, 0, kLarge, Capture::kSnapshot)});
  std::vector<double> stalls;
  for (int i = 0; i <= pairs; ++i) {
    const double stored = bench.time(store);
    const double computed = bench.time(bench.stats_of(DType::kF32, kLarge));
    const double copied = bench.time(bench.device_copy(kLarge));
    if (i > 0) stalls.push_back((stored - computed) / copied);
  }
  rows.print({"snapshot.gpu.stall", "ratio", Goal::kAtMost, 1.05,
              "what storing adds to the stream, over a device copy of 256 MiB"},
             stalls);
  void* pinned = nullptr;
  check(cuMemHostAlloc(&pinned, kLarge, 0), "cuMemHostAlloc");
  std::vector<double> fractions, copies;
  for (int i = 0; i <= pairs; ++i) {
    const double plain = bench::seconds_of([&] {
      check(cuMemcpyDtoHAsync(pinned, bench.data(), kLarge, bench.stream()), "cuMemcpyDtoHAsync");
      check(cuStreamSynchronize(bench.stream()), "cuStreamSynchronize");
    });
    const double stored = bench::seconds_of([&] {
      store();
      check(cuStreamSynchronize(bench.stream()), "cuStreamSynchronize");
      bench.settle();
    });
    if (i > 0) fractions.push_back(plain / stored);
    if (i > 0) copies.push_back(static_cast<double>(kLarge) / 1e9 / plain);
  }
  rows.fact("copy.gpu.to_host", "GB/s", "256 MiB into pinned memory, what this machine can do",
            copies);
  rows.print({"snapshot.gpu.copy", "fraction", Goal::kAtLeast, 0.92,
              "a plain pinned copy of 256 MiB over storing it, statistics included"},
             fractions);
  require(bench.refused() == 0, "storing every value");
}

/// What a profiler is to see, in this order: two launches each.
void once(Bench& bench) {
  const auto twice = [&](const Work& work) {
    for (int i = 0; i < 2; ++i) (void)bench.time(work);
  };
  bench.profile();
  bench.fill(DType::kF32);
  for (const uint64_t bytes : {uint64_t{4096}, kMiB, 16 * kMiB, kLarge / 2, kLarge})
    twice(bench.stats_of(DType::kF32, bytes));
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{64 * 1024}}) {
    std::vector<DeviceRequest> many;
    for (uint64_t i = 0; i < 1000; ++i)
      many.push_back(bench.request(DType::kF32, i * bytes, bytes));
    twice(bench.stats_of(many));
  }
  twice(bench.stats_of({bench.request(DType::kF32, 0, kLarge, Capture::kHash)}));
  for (const DType dtype :
       {DType::kF64, DType::kBF16, DType::kF16, DType::kF8E4M3FN, DType::kI8, DType::kI32}) {
    bench.fill(dtype);
    twice(bench.stats_of(dtype, kLarge));
  }
  for (const Bench::Fill fill : {Bench::Fill::kPositive, Bench::Fill::kNaN}) {
    bench.fill(DType::kF32, fill);
    twice(bench.stats_of(DType::kF32, kLarge));
  }
}

}  // namespace
}  // namespace convtrace

int main(int argc, char** argv) {
  using namespace convtrace;
  const std::string_view mode = argc > 1 ? argv[1] : "";
  int devices = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices == 0) {
    std::fprintf(stderr, "no CUDA device\n");
    return kNoDevice;
  }
  cupti::DriverApi driver;
  if (!load_driver_api(driver).ok()) {
    std::fprintf(stderr, "the driver lacks functions that the engine needs\n");
    return 1;
  }
  constexpr int kPairs = 15;
  Bench bench(driver);
  if (mode == "--once") {
    once(bench);
    return 0;
  }
  bench::Rows rows;
  rate(rows, bench, kPairs);
  if (mode == "--rate") return 0;
  memory(rows, bench, kPairs);
  types(rows, bench, kPairs);
  tail(rows, bench, kPairs);
  shapes(rows, bench, kPairs);
  values(rows, bench, kPairs);
  return 0;
}
