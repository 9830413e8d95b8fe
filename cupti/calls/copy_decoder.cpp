#include "cupti/calls/copy_decoder.h"

#include <cupti.h>

namespace convtrace::cupti {
namespace {

using format::MemorySource;
using Kind = MemoryChange::Kind;

constexpr MemoryChange kNothing{Kind::kNothing};

MemoryChange copy(uint64_t destination, uint64_t source, uint64_t bytes,
                  CUstream stream = nullptr) {
  return {Kind::kCopy, MemorySource::kDriver, destination, bytes, source, stream};
}

MemoryChange to_host(uint64_t destination, uint64_t bytes, CUstream stream) {
  return {Kind::kToHost, MemorySource::kHost, destination, bytes, 0, stream};
}

MemoryChange set(uint64_t destination, uint64_t value, uint64_t bytes, CUstream stream = nullptr) {
  return {Kind::kSet, MemorySource::kDriver, destination, bytes, value, stream};
}

MemoryChange discard(uint64_t address, uint64_t bytes, CUstream stream) {
  return {Kind::kDiscard, MemorySource::kDriver, address, bytes, 0, stream};
}

/// Source: cuda.h, "API synchronization behavior": copies from and to the host wait for the stream,
///         copies within the device do not.
MemoryChange waiting(MemoryChange change) {
  change.may_wait = true;
  return change;
}

/// @tparam Box  CUDA_MEMCPY2D or a similar struct.
template <typename Box>
MemoryChange waiting_by_type(const Box* p, MemoryChange change) {
  const auto may_be_host = [](CUmemorytype type) {
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_UNIFIED;
  };
  change.may_wait =
      p != nullptr && (may_be_host(p->srcMemoryType) || may_be_host(p->dstMemoryType));
  return change;
}

/// The distance from the first to the last byte of rows of `width` bytes, `pitch` apart, in layers
/// of `layer_rows` rows.
uint64_t extent(uint64_t width, uint64_t rows, uint64_t layers, uint64_t pitch,
                uint64_t layer_rows) {
  if (width == 0 || rows == 0 || layers == 0) return 0;
  return width + pitch * (rows - 1 + layer_rows * (layers - 1));
}

template <typename P>
MemoryChange set_rows(const P& p, uint64_t value, uint64_t element, CUstream stream = nullptr) {
  return set(p.dstDevice, value, extent(p.Width * element, p.Height, 1, p.dstPitch, 0), stream);
}

/// The address of the first byte of a box in memory of any kind; 0 in an array.
uint64_t first_byte(CUmemorytype type, CUdeviceptr device, const void* host, uint64_t offset) {
  if (type == CU_MEMORYTYPE_ARRAY) return 0;
  return (type == CU_MEMORYTYPE_HOST ? address_of(host) : device) + offset;
}

template <typename Box>
MemoryChange copy_shape(const Box& p, uint64_t from, uint64_t to, uint64_t bytes, CUstream stream) {
  if (p.dstMemoryType == CU_MEMORYTYPE_ARRAY) return kNothing;
  if (p.dstMemoryType == CU_MEMORYTYPE_HOST)
    return to_host(address_of(p.dstHost) + to, bytes, stream);
  return copy(p.dstDevice + to, first_byte(p.srcMemoryType, p.srcDevice, p.srcHost, from), bytes,
              stream);
}

MemoryChange copy_rows(const CUDA_MEMCPY2D* p, CUstream stream = nullptr) {
  if (p == nullptr) return kNothing;
  return copy_shape(*p, p->srcXInBytes + p->srcPitch * p->srcY,
                    p->dstXInBytes + p->dstPitch * p->dstY,
                    extent(p->WidthInBytes, p->Height, 1, p->dstPitch, 0), stream);
}

/// @tparam Box CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER.
template <typename Box>
MemoryChange copy_box(const Box* p, CUstream stream = nullptr) {
  if (p == nullptr) return kNothing;
  return copy_shape(*p, p->srcXInBytes + p->srcPitch * (p->srcY + p->srcHeight * p->srcZ),
                    p->dstXInBytes + p->dstPitch * (p->dstY + p->dstHeight * p->dstZ),
                    extent(p->WidthInBytes, p->Height, p->Depth, p->dstPitch, p->dstHeight),
                    stream);
}

/// If one operand is an array, whose element size is not given, extents count its elements; else
/// bytes.
MemoryChange copy_operands(const CUDA_MEMCPY3D_BATCH_OP& op, CUstream stream) {
  if (op.dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return kNothing;
  const auto& to = op.dst.op.ptr;
  if (op.src.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return copy(to.ptr, 0, 0, stream);
  const uint64_t pitch = to.rowLength == 0 ? op.extent.width : to.rowLength;
  const uint64_t layer_rows = to.layerHeight == 0 ? op.extent.height : to.layerHeight;
  return copy(to.ptr, op.src.op.ptr.ptr,
              extent(op.extent.width, op.extent.height, op.extent.depth, pitch, layer_rows),
              stream);
}

MemoryChange memory_operation(const CUstreamBatchMemOpParams& op, CUstream stream) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return set(op.writeValue.address, op.writeValue.value, sizeof(uint32_t), stream);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return set(op.writeValue.address, op.writeValue.value64, sizeof(uint64_t), stream);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: return {.kind = Kind::kWait, .stream = stream};
    default: return kNothing;
  }
}

}  // namespace

#define CONVTRACE_DECODE(function, ...)                             \
  MemoryChange decode_##function(const void* params) noexcept {     \
    const auto& p = *static_cast<const function##_params*>(params); \
    return __VA_ARGS__;                                             \
  }

CONVTRACE_DECODE(cuMemcpy, waiting(copy(p.dst, p.src, p.ByteCount)))
CONVTRACE_DECODE(cuMemcpyAsync, copy(p.dst, p.src, p.ByteCount, p.hStream))
CONVTRACE_DECODE(cuMemcpyHtoD_v2, waiting(copy(p.dstDevice, address_of(p.srcHost), p.ByteCount)))
CONVTRACE_DECODE(cuMemcpyHtoDAsync_v2,
                 copy(p.dstDevice, address_of(p.srcHost), p.ByteCount, p.hStream))
CONVTRACE_DECODE(cuMemcpyDtoHAsync_v2, to_host(address_of(p.dstHost), p.ByteCount, p.hStream))
CONVTRACE_DECODE(cuMemcpyDtoD_v2, copy(p.dstDevice, p.srcDevice, p.ByteCount))
CONVTRACE_DECODE(cuMemcpyDtoDAsync_v2, copy(p.dstDevice, p.srcDevice, p.ByteCount, p.hStream))
CONVTRACE_DECODE(cuMemcpyPeer, copy(p.dstDevice, p.srcDevice, p.ByteCount))
CONVTRACE_DECODE(cuMemcpyPeerAsync, copy(p.dstDevice, p.srcDevice, p.ByteCount, p.hStream))
CONVTRACE_DECODE(cuMemcpyAtoD_v2, copy(p.dstDevice, 0, p.ByteCount))
CONVTRACE_DECODE(cuMemcpy2D_v2, waiting_by_type(p.pCopy, copy_rows(p.pCopy)))
CONVTRACE_DECODE(cuMemcpy2DUnaligned_v2, waiting_by_type(p.pCopy, copy_rows(p.pCopy)))
CONVTRACE_DECODE(cuMemcpy2DAsync_v2, copy_rows(p.pCopy, p.hStream))
CONVTRACE_DECODE(cuMemcpy3D_v2, waiting_by_type(p.pCopy, copy_box(p.pCopy)))
CONVTRACE_DECODE(cuMemcpy3DAsync_v2, copy_box(p.pCopy, p.hStream))
CONVTRACE_DECODE(cuMemcpy3DPeer, waiting_by_type(p.pCopy, copy_box(p.pCopy)))
CONVTRACE_DECODE(cuMemcpy3DPeerAsync, copy_box(p.pCopy, p.hStream))

CONVTRACE_DECODE(cuMemsetD8_v2, set(p.dstDevice, p.uc, p.N))
CONVTRACE_DECODE(cuMemsetD16_v2, set(p.dstDevice, p.us, p.N * 2))
CONVTRACE_DECODE(cuMemsetD32_v2, set(p.dstDevice, p.ui, p.N * 4))
CONVTRACE_DECODE(cuMemsetD8Async, set(p.dstDevice, p.uc, p.N, p.hStream))
CONVTRACE_DECODE(cuMemsetD16Async, set(p.dstDevice, p.us, p.N * 2, p.hStream))
CONVTRACE_DECODE(cuMemsetD32Async, set(p.dstDevice, p.ui, p.N * 4, p.hStream))
CONVTRACE_DECODE(cuMemsetD2D8_v2, set_rows(p, p.uc, 1))
CONVTRACE_DECODE(cuMemsetD2D16_v2, set_rows(p, p.us, 2))
CONVTRACE_DECODE(cuMemsetD2D32_v2, set_rows(p, p.ui, 4))
CONVTRACE_DECODE(cuMemsetD2D8Async, set_rows(p, p.uc, 1, p.hStream))
CONVTRACE_DECODE(cuMemsetD2D16Async, set_rows(p, p.us, 2, p.hStream))
CONVTRACE_DECODE(cuMemsetD2D32Async, set_rows(p, p.ui, 4, p.hStream))

CONVTRACE_DECODE(cuStreamWriteValue32_v2, set(p.addr, p.value, sizeof(uint32_t), p.stream))
CONVTRACE_DECODE(cuStreamWriteValue64_v2, set(p.addr, p.value, sizeof(uint64_t), p.stream))

#undef CONVTRACE_DECODE

MemoryChange decode_cuMemcpyDtoH_v2(const void*) noexcept { return waiting(kNothing); }
MemoryChange decode_cuMemcpyAtoH_v2(const void*) noexcept { return waiting(kNothing); }

#define CONVTRACE_DECODE_BATCH(function, structure, number, ...)              \
  size_t count_##function(const void* params) noexcept {                      \
    return static_cast<const structure*>(params)->number;                     \
  }                                                                           \
  MemoryChange decode_##function(const void* params, size_t index) noexcept { \
    const auto& p = *static_cast<const structure*>(params);                   \
    return __VA_ARGS__;                                                       \
  }

CONVTRACE_DECODE_BATCH(cuMemcpyBatchAsync_v1, cuMemcpyBatchAsync_params, count,
                       copy(p.dsts[index], p.srcs[index], p.sizes[index], p.hStream))
CONVTRACE_DECODE_BATCH(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_params, count,
                       copy(p.dsts[index], p.srcs[index], p.sizes[index], p.hStream))
CONVTRACE_DECODE_BATCH(cuMemcpy3DBatchAsync_v1, cuMemcpy3DBatchAsync_params, numOps,
                       copy_operands(p.opList[index], p.hStream))
CONVTRACE_DECODE_BATCH(cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_params, numOps,
                       copy_operands(p.opList[index], p.hStream))
CONVTRACE_DECODE_BATCH(cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_params, count,
                       copy(address_of(p.paramsArray[index].dst),
                            address_of(p.paramsArray[index].src), p.paramsArray[index].dstNumBytes,
                            p.stream))
CONVTRACE_DECODE_BATCH(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_params, count,
                       memory_operation(p.paramArray[index], p.stream))
CONVTRACE_DECODE_BATCH(cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_params, count,
                       discard(p.dptrs[index], p.sizes[index], p.hStream))
CONVTRACE_DECODE_BATCH(cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_params,
                       count, discard(p.dptrs[index], p.sizes[index], p.hStream))

#undef CONVTRACE_DECODE_BATCH

}  // namespace convtrace::cupti
