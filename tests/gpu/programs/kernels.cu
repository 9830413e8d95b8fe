#include <cuda.h>

/// Kernels of the check's own programs, for real GPUs; image.cpp has the same for the fake driver.

extern "C" __global__ void gpu_check_empty() {}

/// Eight parameters, four of them pointers: the launch that the goals for launch overhead are
/// about.
extern "C" __global__ void gpu_check_mix(const float* a, const float* b, const float* c, float* out,
                                         float x, float y, float z, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = x * a[i] + y * b[i] + z * c[i];
}

struct Pair {
  float* first;
  float* second;
};

/// Pointers inside a struct.
extern "C" __global__ void gpu_check_swap(Pair pair, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float kept = pair.first[i];
  pair.first[i] = pair.second[i];
  pair.second[i] = kept;
}

/// One thread that is busy for so long.
extern "C" __global__ void gpu_check_spin(unsigned long long nanoseconds) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
}

/// A tensor map by value, as kernels that use TMA take it.
extern "C" __global__ void gpu_check_tensor_map(const __grid_constant__ CUtensorMap map,
                                                float* out) {
  out[0] = static_cast<float>(reinterpret_cast<const unsigned char*>(&map)[0]);
}

/// Kernels of tests/integration/programs/cuda_alias.c. They touch nothing: that an address is taken
/// is what counts.
extern "C" __global__ void touch(const void*, const void*) {}

struct Words {
  const void* pointer;
  size_t size;
};
extern "C" __global__ void touch_list(Words) {}

/// About as many bytes of parameters as a kernel may take.
struct Wide {
  char bytes[32000];
};
extern "C" __global__ void gpu_check_wide(const __grid_constant__ Wide, float*) {}
