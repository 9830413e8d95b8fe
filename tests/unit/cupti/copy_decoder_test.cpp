#include "cupti/calls/copy_decoder.h"

#include <cupti.h>

#include "tests/support/catch.h"

// What each call is decoded to: callback_vectors_test.cpp.

namespace convtrace::cupti {
namespace {

using Kind = MemoryChange::Kind;

TEST_CASE("copy_decoder: a copy into an array is nothing, one to the host is told apart",
          "[copy_decoder]") {
  CUDA_MEMCPY2D rows{};
  CUDA_MEMCPY3D box{};
  rows.dstHost = box.dstHost = &rows;
  rows.dstXInBytes = box.dstXInBytes = 8;
  const cuMemcpy2D_v2_params two{&rows};
  const cuMemcpy3D_v2_params three{&box};
  rows.dstMemoryType = box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  CHECK(decode_cuMemcpy2D_v2(&two).kind == Kind::kNothing);
  CHECK(decode_cuMemcpy3D_v2(&three).kind == Kind::kNothing);
  rows.dstMemoryType = box.dstMemoryType = CU_MEMORYTYPE_HOST;
  for (const MemoryChange& change : {decode_cuMemcpy2D_v2(&two), decode_cuMemcpy3D_v2(&three)}) {
    CHECK(change.kind == Kind::kToHost);
    CHECK(change.address == reinterpret_cast<uint64_t>(&rows) + 8);
  }
}

TEST_CASE("copy_decoder: a copy of no rows writes no bytes", "[copy_decoder]") {
  CUDA_MEMCPY2D rows{};
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = 0x7000;
  rows.dstPitch = rows.WidthInBytes = 16;
  const cuMemcpy2D_v2_params params{&rows};
  CHECK(decode_cuMemcpy2D_v2(&params).kind == Kind::kCopy);
  CHECK(decode_cuMemcpy2D_v2(&params).bytes == 0);
}

}  // namespace
}  // namespace convtrace::cupti
