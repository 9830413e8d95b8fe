#pragma once
/// @file crowd.h
/// Helpers for tests with several streams: streams, a kernel that waits for the host, and their
/// destruction.

#include <cuda.h>

#include <atomic>
#include <vector>

#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/hook.h"
#include "tests/support/catch.h"

namespace fakecuda {

/// Streams that wait for no other stream and have a connection each.
struct Streams {
  explicit Streams(size_t count, unsigned flags = CU_STREAM_NON_BLOCKING) : all(count) {
    constexpr uint64_t kOfTheirOwn = 1 << 20;
    fakecuda_connections(kOfTheirOwn);
    for (CUstream& stream : all) REQUIRE(cuStreamCreate(&stream, flags) == CUDA_SUCCESS);
  }
  ~Streams() {
    for (CUstream stream : all) cuStreamDestroy(stream);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  CUstream operator[](size_t i) const { return all[i]; }
  std::vector<CUstream> all;
};

/// A kernel that ends when the host says so. It was launched once before, so its launch does not
/// wait for loading.
class Gatekeeper {
 public:
  Gatekeeper() {
    REQUIRE(cuModuleLoadData(&module_, &kImage) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&kernel_, module_, "stalls") == CUDA_SUCCESS);
    open_ = true;
    stall(nullptr);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    open_ = false;
  }
  ~Gatekeeper() {
    let_go();
    cuModuleUnload(module_);
  }
  Gatekeeper(const Gatekeeper&) = delete;
  Gatekeeper& operator=(const Gatekeeper&) = delete;

  void stall(CUstream stream) {
    REQUIRE(cuLaunchKernel(kernel_, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == CUDA_SUCCESS);
  }
  static void let_go() { open_ = true; }

 private:
  static void run(const fakecuda_launch* launch) { *launch->unfinished = open_ ? 0 : 1; }
  static inline std::atomic<bool> open_{false};
  static constexpr fakecuda_kernel kKernels[] = {{"stalls", run, 0, nullptr}};
  static constexpr fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
};

}  // namespace fakecuda
