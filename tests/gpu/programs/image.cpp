#include "tests/gpu/programs/image.h"

#include <cstring>
#include <utility>

#include "tests/fakecuda/fakecuda.h"

extern "C" const unsigned char gpu_check_fatbin[];

namespace convtrace::gpu {
namespace {

template <typename T>
T value(const fakecuda_launch* launch, unsigned param) {
  T result;
  std::memcpy(&result, launch->params[param], sizeof result);
  return result;
}

float* floats(const fakecuda_launch* launch, uint64_t address, unsigned count) {
  return static_cast<float*>(launch->device(address, count * sizeof(float)));
}

void run_empty(const fakecuda_launch*) {}

void run_mix(const fakecuda_launch* launch) {
  const unsigned count = value<unsigned>(launch, 7);
  const float* a = floats(launch, value<uint64_t>(launch, 0), count);
  const float* b = floats(launch, value<uint64_t>(launch, 1), count);
  const float* c = floats(launch, value<uint64_t>(launch, 2), count);
  float* out = floats(launch, value<uint64_t>(launch, 3), count);
  if (a == nullptr || b == nullptr || c == nullptr || out == nullptr) return;
  const auto x = value<float>(launch, 4), y = value<float>(launch, 5), z = value<float>(launch, 6);
  for (unsigned i = 0; i < count; ++i) out[i] = x * a[i] + y * b[i] + z * c[i];
}

/// The fake driver does all work at once: a kernel that takes long would only take the test's time.
void run_spin(const fakecuda_launch*) {}

void run_swap(const fakecuda_launch* launch) {
  struct Pair {
    uint64_t first, second;
  };
  const auto pair = value<Pair>(launch, 0);
  const unsigned count = value<unsigned>(launch, 1);
  float* first = floats(launch, pair.first, count);
  float* second = floats(launch, pair.second, count);
  if (first == nullptr || second == nullptr) return;
  for (unsigned i = 0; i < count; ++i) std::swap(first[i], second[i]);
}

/// What a tensor map describes is the device's business.
void run_tensor_map(const fakecuda_launch*) {}

void run_wide(const fakecuda_launch*) {}

constexpr unsigned kMixParams[] = {8, 8, 8, 8, 4, 4, 4, 4};
constexpr unsigned kSpinParams[] = {8};
constexpr unsigned kSwapParams[] = {16, 4};
constexpr unsigned kTensorMapParams[] = {128, 8};
constexpr unsigned kWideParams[] = {32000, 8};
constexpr fakecuda_kernel kKernels[] = {
    {"gpu_check_empty", run_empty, 0, nullptr},
    {"gpu_check_mix", run_mix, 8, kMixParams},
    {"gpu_check_spin", run_spin, 1, kSpinParams},
    {"gpu_check_swap", run_swap, 2, kSwapParams},
    {"gpu_check_tensor_map", run_tensor_map, 2, kTensorMapParams},
    {"gpu_check_wide", run_wide, 2, kWideParams},
};
constexpr fakecuda_image kFakeImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 6, kKernels};

}  // namespace

const void* kernel_image(const char* device_name) {
  const bool fake = std::strncmp(device_name, "Fake device", 11) == 0;
  return fake ? static_cast<const void*>(&kFakeImage) : gpu_check_fatbin;
}

}  // namespace convtrace::gpu
