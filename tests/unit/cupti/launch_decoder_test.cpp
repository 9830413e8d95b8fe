#include "cupti/calls/launch_decoder.h"

#include <cupti.h>

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

template <typename T>
T* handle(uintptr_t value) {
  return reinterpret_cast<T*>(value);  // an opaque number, never followed
}

TEST_CASE("launch_decoder: a launch without a config still has its function", "[launch_decoder]") {
  const cuLaunchKernelEx_params without{nullptr, handle<CUfunc_st>(7), nullptr, nullptr};
  CHECK(decode_cuLaunchKernelEx(&without).function == without.f);
}

TEST_CASE("launch_decoder: stream 0 of a per-thread entry point is the per-thread stream",
          "[launch_decoder]") {
  CHECK(effective_stream(nullptr, true) == CU_STREAM_PER_THREAD);
  CHECK(effective_stream(nullptr, false) == nullptr);
  CHECK(effective_stream(handle<CUstream_st>(9), true) == handle<CUstream_st>(9));
}

TEST_CASE("launch_decoder: parameters are found behind kernelParams", "[launch_decoder]") {
  uint64_t first = 0x1234;
  void* values[2] = {&first, nullptr};
  LaunchInfo launch;
  launch.params = values;
  const LaunchParams params(launch);
  CHECK(static_cast<const void*>(params.bytes_of(0, 0, 8).data()) == &first);
  CHECK(params.bytes_of(1, 8, 8).empty());
}

TEST_CASE("launch_decoder: parameters are found in an extra buffer, and never past its end",
          "[launch_decoder]") {
  std::byte buffer[16] = {};
  size_t bytes = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  LaunchInfo launch;
  launch.extra = extra;
  const LaunchParams params(launch);
  CHECK(params.bytes_of(1, 8, 8).data() == buffer + 8);
  CHECK(params.bytes_of(1, 9, 8).empty());
  CHECK(params.bytes_of(1, 17, 0).empty());
  CHECK(LaunchParams(LaunchInfo{}).bytes_of(0, 0, 8).empty());

  extra[3] = nullptr;  // a list that the driver will refuse
  CHECK(LaunchParams(launch).bytes_of(0, 0, 8).empty());
}

}  // namespace
}  // namespace convtrace::cupti
