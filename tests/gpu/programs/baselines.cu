// What gpu_stats_bench compares with, by the CUDA runtime: CUB's sum and a kernel that does
// nothing.

#include "tests/gpu/programs/baselines.h"

#include <cub/device/device_reduce.cuh>

namespace {

__global__ void nothing() {}

/// One thread that is busy for so long.
__global__ void wait(unsigned long long nanoseconds) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
}

struct Temporary {
  void* memory = nullptr;
  size_t bytes = 0;
  void* result = nullptr;
};

template <typename T>
int sum(const void* data, size_t bytes, void* stream) {
  static Temporary temporary;
  const auto* values = static_cast<const T*>(data);
  const auto count = static_cast<long long>(bytes / sizeof(T));
  if (temporary.memory == nullptr) {
    if (cudaMalloc(&temporary.result, sizeof(T)) != cudaSuccess) return 1;
    cub::DeviceReduce::Sum(nullptr, temporary.bytes, values, static_cast<T*>(temporary.result),
                           count);
    if (cudaMalloc(&temporary.memory, temporary.bytes) != cudaSuccess) return 1;
  }
  return cub::DeviceReduce::Sum(temporary.memory, temporary.bytes, values,
                                static_cast<T*>(temporary.result), count,
                                static_cast<cudaStream_t>(stream)) != cudaSuccess;
}

}  // namespace

extern "C" int baseline_sum_f32(const void* data, size_t bytes, void* stream) {
  return sum<float>(data, bytes, stream);
}
extern "C" int baseline_sum_f64(const void* data, size_t bytes, void* stream) {
  return sum<double>(data, bytes, stream);
}
extern "C" int baseline_sum_i32(const void* data, size_t bytes, void* stream) {
  return sum<int>(data, bytes, stream);
}

extern "C" int baseline_wait(unsigned long long nanoseconds, void* stream) {
  wait<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(nanoseconds);
  return cudaGetLastError() != cudaSuccess;
}

extern "C" int baseline_nothing(void* stream) {
  nothing<<<1, 64, 0, static_cast<cudaStream_t>(stream)>>>();
  return cudaGetLastError() != cudaSuccess;
}
