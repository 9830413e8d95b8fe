/// Tensor maps: opaque to the program, so anything that depends on the address will do.

#include "tests/fakecuda/driver.h"

using namespace fakecuda;

namespace {

CUresult encode(CUtensorMap* map, const void* address) {
  if (map == nullptr || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t i = 0; i < std::size(map->opaque); ++i)
    map->opaque[i] = (reinterpret_cast<uint64_t>(address) ^ 0x5555555555555555) * (2 * i + 1);
  return CUDA_SUCCESS;
}

}  // namespace

FAKECUDA_EXPORT CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  const cuTensorMapEncodeTiled_params params{map,        type,    rank,      address,
                                             sizes,      strides, box,       element_strides,
                                             interleave, swizzle, promotion, fill};
  return FAKECUDA_AROUND(cuTensorMapEncodeTiled, params, [&] { return encode(map, address); });
}

FAKECUDA_EXPORT CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  const cuTensorMapReplaceAddress_params params{map, address};
  return FAKECUDA_AROUND(cuTensorMapReplaceAddress, params, [&] { return encode(map, address); });
}
