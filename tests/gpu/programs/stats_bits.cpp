/// Statistics of tensors in device memory against the CPU's, to the last bit: tiers T0 and T1 of
/// docs/recording.md.
///
/// usage: gpu_stats_bits [--large]
///
/// Every type, sizes around the limits of tiles and vectors, every misalignment within 16 bytes,
/// views, special values; some alone and all together in batches; some a hundred times while copies
/// keep the memory busy; then all with the variant for GPUs with slow f64, whose sums of f32 are near the
/// CPU's, all else equal. --large adds one tensor above 4 GiB. Prints one JSON object: device,
/// tensors compared, unequal, the first unequal one in words. Exit code 0 equal, 1 not, 77 no
/// device.

#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cupti/stats/compute.h"
#include "cupti/stats/tile/layout.h"
#include "cupti/values/device_stats.h"
#include "tests/gpu/programs/device.h"
#include "tests/support/same_stats.h"
#include "tests/unit/cupti/collecting_sink.h"

namespace convtrace {
namespace {

using cupti::DeviceRequest;
using format::Capture;
using format::DType;
using gpu::check;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint32_t kSamples = 100;

/// What the bytes of a tensor are made of.
enum class Fill { kRandomBits, kAllNaN, kSubnormal, kZeros };
constexpr const char* kFillNames[] = {"random bits", "all bits set", "subnormal", "zeros"};

/// The same bytes on the host and on the device, `shift` bytes behind an aligned address.
class Twin {
 public:
  Twin(uint64_t bytes, uint64_t shift, Fill fill, uint64_t seed) : host_(bytes), shift_(shift) {
    std::mt19937_64 random(seed);
    for (uint64_t i = 0; i < bytes; ++i) host_[i] = byte(fill, i, random);
    check(cuMemAlloc(&base_, bytes + shift + 16), "cuMemAlloc");
    check(cuMemcpyHtoD(base_ + shift, host_.data(), bytes), "cuMemcpyHtoD");
  }
  ~Twin() { cuMemFree(base_); }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  [[nodiscard]] CUdeviceptr address() const { return base_ + shift_; }
  [[nodiscard]] const void* host() const { return host_.data(); }

 private:
  static uint8_t byte(Fill fill, uint64_t i, std::mt19937_64& random) {
    switch (fill) {
      case Fill::kRandomBits: return static_cast<uint8_t>(random());
      case Fill::kAllNaN: return 0xff;
      case Fill::kSubnormal: return i % 8 == 0 ? uint8_t{1} : uint8_t{0};
      case Fill::kZeros: break;
    }
    return 0;
  }

  std::vector<uint8_t> host_;
  uint64_t shift_;
  CUdeviceptr base_ = 0;
};

struct Case {
  std::string what;
  std::unique_ptr<Twin> twin;
  uint64_t offset = 0;  ///< of the view's first element, in bytes
  DeviceRequest request;
};

/// @param first element in memory that the view begins with.
Case make_case(stats::TensorView view, uint64_t bytes, uint64_t shift, Fill fill, uint64_t seed,
               Capture capture, uint64_t first = 0) {
  Case made;
  made.twin = std::make_unique<Twin>(bytes, shift, fill, seed);
  made.offset = first * element_bytes(view.dtype);
  view.data = reinterpret_cast<const void*>(made.twin->address() + made.offset);
  made.request.view = view;
  made.request.event.dtype = view.dtype;
  made.request.event.capture = capture;
  made.request.event.address = made.twin->address();
  made.request.event.has_shape = true;
  made.request.samples = kSamples;
  made.what = std::string(to_string(view.dtype)) + ", " + std::to_string(element_count(view)) +
              " elements, shift " + std::to_string(shift) + ", " +
              kFillNames[static_cast<size_t>(fill)];
  return made;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  uint64_t seed = 1;
  const auto dense = [&](DType dtype, uint64_t count, uint64_t shift, Fill fill) {
    ++seed;
    const Capture capture = seed % 4 == 0 ? Capture::kHash : Capture::kStats;
    const uint64_t bytes = count * element_bytes(dtype);
    cases.push_back(
        make_case(stats::dense_view(nullptr, dtype, count), bytes, shift, fill, seed, capture));
  };
  for (uint8_t i = 1; i < format::kEnumCount<format::DType>; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (uint64_t count :
         {0, 1, 31, 32, 33, 1023, 1024, 1025, (1 << 20) - 1, 1 << 20, (1 << 20) + 1})
      dense(dtype, count, 0, Fill::kRandomBits);
    for (Fill fill : {Fill::kAllNaN, Fill::kSubnormal, Fill::kZeros}) dense(dtype, 70'001, 0, fill);
    for (uint64_t shift = element_bytes(dtype); shift < 16; shift += element_bytes(dtype))
      dense(dtype, 10'007, shift, Fill::kRandomBits);
    stats::TensorView transposed{.dtype = dtype, .rank = 2};
    transposed.shape[0] = 48, transposed.shape[1] = 64;
    transposed.strides[0] = 1, transposed.strides[1] = 48;
    cases.push_back(make_case(transposed, 48 * 64 * element_bytes(dtype), 0, Fill::kRandomBits,
                              ++seed, Capture::kStats));
    stats::TensorView backwards{.dtype = dtype, .rank = 2};
    backwards.shape[0] = 48, backwards.shape[1] = 64;
    backwards.strides[0] = -64, backwards.strides[1] = 1;
    cases.push_back(make_case(backwards, 48 * 64 * element_bytes(dtype), 0, Fill::kRandomBits,
                              ++seed, Capture::kStats, 47 * 64));
    stats::TensorView expanded{.dtype = dtype, .rank = 2};
    expanded.shape[0] = 1000, expanded.shape[1] = 3;
    expanded.strides[1] = 1;
    cases.push_back(make_case(expanded, 3 * element_bytes(dtype), 0, Fill::kRandomBits, ++seed,
                              Capture::kStats));
  }
  return cases;
}

struct Outcome {
  uint64_t compared = 0, unequal = 0;
  std::string first;
};

/// The floating sums of the variant: within 1e-9 of what was added up, as tier T2 allows 1e-6.
bool near(const format::Stats& got, const format::Stats& want) {
  const auto within = [](double a, double b, double scale) {
    return (std::isnan(a) && std::isnan(b)) || a == b || std::fabs(a - b) <= 1e-9 * scale;
  };
  const double l1 = want.l1.as_f64();
  const double count = static_cast<double>(std::max<uint64_t>(want.finite, 1));
  return within(got.sum.as_f64(), want.sum.as_f64(), l1) && within(got.l1.as_f64(), l1, l1) &&
         within(got.l2, want.l2, want.l2) && within(got.mean, want.mean, l1 / count) &&
         within(got.std, want.std, want.std);
}

bool same(const format::TensorStats& got, const stats::StatsResult& want) {
  const std::span<const uint64_t> ranges(want.range_hashes, want.range_count);
  format::Stats exact = got.stats;
  if (got.variant != want.variant) {
    if (got.capture == Capture::kStats && !near(exact, want.stats)) return false;
    exact.sum = want.stats.sum, exact.l1 = want.stats.l1, exact.l2 = want.stats.l2;
    exact.mean = want.stats.mean, exact.std = want.stats.std;
  }
  return test::same_bits(exact, want.stats) && std::ranges::equal(got.range_hashes, ranges) &&
         std::ranges::equal(got.samples, std::span(want.samples, want.sample_bytes));
}

/// @param view on the host. @return its first elements in logical order, as a request has them.
std::vector<std::byte> leading_of(const stats::TensorView& view) {
  stats::Layout layout;
  if (!stats::flatten(view, layout).ok() || layout.count == 0) return {};
  const uint64_t values = kSamples * format::values_in_element(view.dtype);
  const uint64_t count = std::min(layout.values(), values);
  std::vector<std::byte> bytes(count * format::element_bytes(layout.dtype));
  stats::gather_values(layout, 0, count, bytes.data());
  return bytes;
}

/// Statistics of one context, as a traced process has them: until the context ends.
class Checker {
 public:
  Checker(CUcontext context, const cupti::DriverApi& driver)
      : context_(context), stats_(driver, sink_, kSamples) {}
  ~Checker() { stats_.forget(context_); }
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  /// Runs `cases` as one batch and compares what comes out.
  void run(std::span<const Case> cases, Outcome& outcome) {
    std::vector<DeviceRequest> batch;
    for (const Case& one : cases) batch.push_back(one.request);
    sink_.clear();
    const format::SampleOutcome answer = stats_.submit(context_, batch, nullptr, 10 * kSecondNs);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    uint64_t room = UINT64_MAX;
    stats_.collect(room);
    const auto results = sink_.all<format::TensorStats>();
    for (size_t i = 0; i < cases.size(); ++i) {
      ++outcome.compared;
      const bool has_result = answer == format::SampleOutcome::kSampled && i < results.size();
      if (has_result && equals_cpu(cases[i], results[i])) continue;
      if (outcome.unequal++ == 0)
        outcome.first = (has_result ? "" : "no result came out for ") + cases[i].what;
    }
  }

 private:
  static bool equals_cpu(const Case& one, const format::TensorStats& result) {
    stats::TensorView view = one.request.view;
    view.data = static_cast<const std::byte*>(one.twin->host()) + one.offset;
    stats::StatsResult want;
    const Capture capture = one.request.event.capture;
    const auto leading = capture == Capture::kHash ? std::vector<std::byte>() : leading_of(view);
    return stats::compute_on_cpu(view, capture, want).ok() && same(result, want) &&
           std::ranges::equal(result.leading, leading);
  }

  CUcontext context_;
  cupti::CollectingSink sink_;
  cupti::DeviceStats stats_;
};

void run_in_batches(Checker& checker, std::span<const Case> cases, Outcome& outcome) {
  constexpr size_t kBatch = 200;
  for (size_t i = 0; i < cases.size(); i += kBatch)
    checker.run(cases.subspan(i, std::min(kBatch, cases.size() - i)), outcome);
}

/// Contexts that end and come again: each has its own memory and kernels.
void run_in_short_contexts(const cupti::DriverApi& driver, Outcome& outcome) {
  CUcontext before = nullptr;
  check(cuCtxGetCurrent(&before), "cuCtxGetCurrent");
  for (uint64_t seed = 0; seed < 3; ++seed) {
    CUcontext context = nullptr;
    check(cuCtxCreate(&context, nullptr, 0, 0), "cuCtxCreate");
    std::vector<Case> one;
    one.push_back(make_case(stats::dense_view(nullptr, DType::kF32, 10'007), 10'007 * 4, 0,
                            Fill::kRandomBits, seed, Capture::kStats));
    Checker(context, driver).run(one, outcome);
    one.clear();
    check(cuCtxDestroy(context), "cuCtxDestroy");
  }
  check(cuCtxSetCurrent(before), "cuCtxSetCurrent");
}

/// Work of another stream, enqueued while this lives.
class Load {
 public:
  Load() {
    check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (CUdeviceptr* buffer : {&from_, &to_}) check(cuMemAlloc(buffer, kBytes), "cuMemAlloc");
  }
  ~Load() {
    cuStreamSynchronize(stream_);
    for (CUdeviceptr buffer : {from_, to_}) cuMemFree(buffer);
    cuStreamDestroy(stream_);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void more() {
    for (int i = 0; i < 8; ++i)
      check(cuMemcpyDtoDAsync(to_, from_, kBytes, stream_), "cuMemcpyDtoDAsync");
  }

 private:
  static constexpr size_t kBytes = 8 << 20;
  CUstream stream_ = nullptr;
  CUdeviceptr from_ = 0, to_ = 0;
};

/// What a driver says of a GPU for graphics.
CUresult slow_f64(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (attribute != CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO)
    return cuDeviceGetAttribute(value, attribute, device);
  *value = 64;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace convtrace

int main(int argc, char** argv) {
  using namespace convtrace;
  const bool large = argc > 1 && std::strcmp(argv[1], "--large") == 0;
  gpu::start_driver();
  const gpu::Device device;
  cupti::DriverApi driver;
  if (!load_driver_api(driver).ok()) {
    std::fprintf(stderr, "the driver lacks functions that the engine needs\n");
    return 1;
  }

  Outcome outcome;
  const std::vector<Case> cases = all_cases();
  Checker checker(device.context, driver);
  run_in_batches(checker, cases, outcome);
  for (size_t i = 0; i < cases.size(); i += 7)  // alone: a batch must not change anything
    checker.run(std::span(cases).subspan(i, 1), outcome);
  std::vector<Case> repeated;
  for (Case& one : all_cases())
    if (stats::element_count(one.request.view) <= 10'007) repeated.push_back(std::move(one));
  Load load;
  for (size_t i = 0; i < 100; ++i) {
    load.more();
    checker.run(std::span(repeated).subspan(i % 10, 60), outcome);
  }
  cupti::DriverApi slow = driver;
  slow.device_get_attribute = &slow_f64;
  Checker slow_checker(device.context, slow);
  run_in_batches(slow_checker, cases, outcome);
  run_in_short_contexts(driver, outcome);
  if (large) {
    constexpr uint64_t kCount = (uint64_t{1} << 30) + 3;
    std::vector<Case> one;
    one.push_back(make_case(stats::dense_view(nullptr, DType::kF32, kCount), kCount * 4, 0,
                            Fill::kRandomBits, 9, Capture::kStats));
    checker.run(one, outcome);
  }
  std::printf(
      "{\"device\": \"%s\", \"compared\": %lu, \"unequal\": %lu, \"first_unequal\": \"%s\"}\n",
      device.name, outcome.compared, outcome.unequal, outcome.first.c_str());
  return outcome.unequal == 0 ? 0 : 1;
}
