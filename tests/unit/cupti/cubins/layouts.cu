// Kernels whose cubins cubin_layout_test.cpp reads.

#include "layouts.h"

extern "C" {

__global__ void add(const float* a, const float* b, float* out, unsigned count) {
  if (threadIdx.x < count) out[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}

__global__ void structs(char flag, Tensors tensors, short bias, double scale) {
  tensors.data[0][0] = static_cast<float>(tensors.data[1][0] * scale + flag + bias);
}

__global__ void none() {}

__global__ void map(const __grid_constant__ TensorMap map, unsigned long long* out) {
  *out = map.words[threadIdx.x];
}

__global__ void large(const __grid_constant__ Large large, char* out) {
  *out = large.bytes[threadIdx.x];
}

}  // extern "C"

namespace {
template <typename T>
__global__ void fill(T* data, T value) {
  *data = value;
}
}  // namespace

void keep(double* data) { fill<<<1, 1>>>(data, 1.0); }
