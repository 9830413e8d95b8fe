#include "cupti/copy_decoder.h"

#include <cupti.h>

#include "tests/support/catch.h"

// What each call is decoded to: callback_vectors_test.cpp.

namespace convtrace::cupti {
namespace {

using Kind = MemoryChange::Kind;

TEST_CASE("copy_decoder: a copy to the host or into an array is nothing", "[copy_decoder]") {
  CUDA_MEMCPY2D rows{};
  CUDA_MEMCPY3D box{};
  for (const CUmemorytype type : {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_ARRAY}) {
    rows.dstMemoryType = box.dstMemoryType = type;
    const cuMemcpy2D_v2_params two{&rows};
    const cuMemcpy3D_v2_params three{&box};
    CHECK(decode_cuMemcpy2D_v2(&two).kind == Kind::kNothing);
    CHECK(decode_cuMemcpy3D_v2(&three).kind == Kind::kNothing);
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
