#pragma once
/// @file device_scene.h
/// A context of the fake driver with statistics in it, and tensors of which the host has the same
/// bytes: for tests of device_stats.h.

#include <cuda.h>

#include <random>
#include <vector>

#include "cupti/stats/compute.h"
#include "cupti/values/device_stats.h"
#include "tests/support/catch.h"
#include "tests/unit/cupti/collecting_sink.h"

namespace convtrace::cupti {

using format::Capture;
using format::DType;
using format::SampleOutcome;
using format::TensorStats;

inline constexpr uint64_t kSecondNs = 1'000'000'000;

inline DriverApi load_fake() {
  DriverApi api;
  REQUIRE(load_driver_api(api).ok());
  return api;
}

/// A tensor in device memory, with the same bytes on the host.
struct Twin {
  explicit Twin(uint64_t bytes, uint64_t seed = 1) : host(bytes) {
    std::mt19937_64 random(seed);
    for (auto& byte : host) byte = static_cast<uint8_t>(random());
    REQUIRE(cuMemAlloc(&address, bytes) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyHtoD(address, host.data(), bytes) == CUDA_SUCCESS);
  }
  ~Twin() { cuMemFree(address); }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  [[nodiscard]] DeviceRequest request(stats::TensorView view,
                                      Capture capture = Capture::kStats) const {
    DeviceRequest request;
    request.view = view;
    request.view.data = reinterpret_cast<const void*>(address);
    request.event.dtype = view.dtype;
    request.event.capture = capture;
    request.event.address = address;
    request.event.has_shape = true;
    return request;
  }
  [[nodiscard]] DeviceRequest request(DType dtype = DType::kF32,
                                      Capture capture = Capture::kStats) const {
    return request(stats::dense_view(nullptr, dtype, host.size() / format::element_bytes(dtype)),
                   capture);
  }
  [[nodiscard]] stats::StatsResult on_cpu(const DeviceRequest& request) const {
    stats::TensorView view = request.view;
    view.data = host.data();
    stats::StatsResult result;
    REQUIRE(stats::compute_on_cpu(view, request.event.capture, result).ok());
    return result;
  }

  std::vector<uint8_t> host;
  CUdeviceptr address = 0;
};

struct DeviceScene {
  explicit DeviceScene(uint32_t most_samples = 8, ValueSink* values = nullptr,
                       uint64_t value_bytes = 0)
      : driver(load_fake()), stats(driver, sink, most_samples, values, value_bytes) {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
  }
  ~DeviceScene() {
    stats.forget(context);
    cuCtxDestroy(context);
  }

  void prepare() {
    REQUIRE(stats.submit(context, {}, nullptr, 10 * kSecondNs) == SampleOutcome::kSampled);
  }
  SampleOutcome submit(const std::vector<DeviceRequest>& batch, CUstream stream = nullptr) {
    return stats.submit(context, batch, stream);
  }
  /// All that is finished. @return how many are still under way.
  uint64_t collect() {
    uint64_t room = UINT64_MAX;
    return stats.collect(room);
  }
  /// @return what has come out so far.
  std::vector<TensorStats> results() {
    collect();
    return sink.all<TensorStats>();
  }
  uint64_t lost(format::LossReason reason) {
    uint64_t count = 0;
    for (const auto& loss : sink.all<format::Loss>())
      if (loss.reason == reason) count += loss.count;
    return count;
  }

  CollectingSink sink;
  DriverApi driver;
  DeviceStats stats;
  CUcontext context = nullptr;
};

}  // namespace convtrace::cupti
