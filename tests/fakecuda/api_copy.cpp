/// Copies and sets.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "tests/fakecuda/memory_calls.h"

using namespace fakecuda;

namespace {

/// @return a host pointer for either side of a copy: an address that is no device memory is the
/// host's.
char* either(CUdeviceptr address, size_t bytes) {
  void* device = driver().memory.translate(address, bytes);
  return static_cast<char*>(device == nullptr ? reinterpret_cast<void*>(address) : device);
}

/// What a copy has on the host: D "API synchronization behavior" has calls wait for pageable
/// memory, those without a stream for any of the host, and for none between places on the device.
enum class OnHost : uint8_t { kNothing, kPinned, kPageable };
thread_local OnHost on_host = OnHost::kNothing;

void note_side(CUdeviceptr address, bool device) {
  const auto facts = device ? std::nullopt : driver().memory.facts(address);
  const OnHost side = device || (facts && !facts->shared) ? OnHost::kNothing
                      : facts                             ? OnHost::kPinned
                                                          : OnHost::kPageable;
  on_host = std::max(on_host, side);
}

/// Device addresses are checked when the work runs, as on a GPU.
std::function<void()> copy_work(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device,
                                size_t bytes) {
  note_side(to, to_device);
  note_side(from, from_device);
  return [=] {
    void* destination =
        to_device ? checked_translate(to, bytes) : static_cast<void*>(either(to, bytes));
    const void* source =
        from_device ? checked_translate(from, bytes) : static_cast<void*>(either(from, bytes));
    if (destination != nullptr && source != nullptr) memmove(destination, source, bytes);
  };
}

template <typename Element>
std::function<void()> set_work(CUdeviceptr to, Element value, size_t count) {
  return [=] {
    auto* destination = static_cast<Element*>(checked_translate(to, count * sizeof(Element)));
    for (size_t i = 0; destination != nullptr && i < count; ++i) destination[i] = value;
  };
}

/// Rows of `width` bytes, in layers.
struct Rows {
  CUdeviceptr first;
  size_t pitch, layer;
};

std::function<void()> box_work(Rows to, Rows from, size_t width, size_t height, size_t depth) {
  note_side(to.first, true);
  note_side(from.first, false);
  return [=] {
    for (size_t i = 0; i < height * depth; ++i) {
      const size_t y = i % height, z = i / height;
      copy_work(to.first + y * to.pitch + z * to.layer, true,
                from.first + y * from.pitch + z * from.layer, false, width)();
    }
  };
}

/// Both sides in memory: arrays are not imitated.
std::function<void()> rows_work(const CUDA_MEMCPY2D& p) {
  const bool from_host = p.srcMemoryType == CU_MEMORYTYPE_HOST;
  return box_work(
      {p.dstDevice + p.dstXInBytes + p.dstY * p.dstPitch, p.dstPitch, 0},
      {(from_host ? number(p.srcHost) : p.srcDevice) + p.srcXInBytes + p.srcY * p.srcPitch,
       p.srcPitch, 0},
      p.WidthInBytes, p.Height, 1);
}

template <typename Box>
std::function<void()> box_work(const Box& p) {
  return box_work({p.dstDevice, p.dstPitch, p.dstPitch * p.dstHeight},
                  {p.srcDevice, p.srcPitch, p.srcPitch * p.srcHeight}, p.WidthInBytes, p.Height,
                  p.Depth);
}

template <typename Element>
std::function<void()> set_rows_work(CUdeviceptr to, size_t pitch, Element value, size_t width,
                                    size_t height) {
  return [=] {
    for (size_t y = 0; y < height; ++y) set_work(to + y * pitch, value, width)();
  };
}

std::function<void()> batch_work(const CUdeviceptr* to, const CUdeviceptr* from,
                                 const size_t* bytes, size_t count) {
  std::vector<std::function<void()>> parts;
  for (size_t i = 0; i < count; ++i)
    parts.push_back(copy_work(to[i], false, from[i], false, bytes[i]));
  return [parts] {
    for (const auto& part : parts) part();
  };
}

std::function<void()> write_work(const CUstreamBatchMemOpParams* ops, unsigned count) {
  const std::vector<CUstreamBatchMemOpParams> all(ops, ops + count);
  return [all] {
    for (const auto& op : all) {
      if (op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
        set_work<uint32_t>(op.writeValue.address, op.writeValue.value, 1)();
    }
  };
}

bool waits(std::string_view function) {
  const OnHost side = std::exchange(on_host, OnHost::kNothing);
  const bool synchronous = function.find("Async") == function.npos;
  return side == OnHost::kPageable || (synchronous && side == OnHost::kPinned);
}

/// Waits for a copy, unless it was captured.
CUresult finish_copy(CUstream stream) {
  {
    const std::lock_guard lock(driver().mutex);
    if (stream->status != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_SUCCESS;
  }
  return wait_for(stream);
}

}  // namespace

/// X(function, its parameter list, its argument list, the stream, the work)
#define FAKECUDA_STREAM_CALL(function, per_thread, parameters, arguments, stream, work) \
  FAKECUDA_EXPORT CUresult function parameters {                                        \
    const function##_params params arguments;                                           \
    return FAKECUDA_AROUND(function, params, [&] {                                      \
      const CUresult result = on_stream(stream, per_thread, work);                      \
      if (!waits(#function) || result != CUDA_SUCCESS) return result;                   \
      return finish_copy(resolve(stream, per_thread));                                  \
    });                                                                                 \
  }

/// An entry point and its per-thread twin.
#define FAKECUDA_TWINS(function, suffix, parameters, arguments, stream, work)              \
  FAKECUDA_STREAM_CALL(function, false, parameters, FAKECUDA_LIST arguments, stream, work) \
  FAKECUDA_STREAM_CALL(function##_##suffix, true, parameters, FAKECUDA_LIST arguments, stream, work)

#define FAKECUDA_LIST(...) \
  { __VA_ARGS__ }

FAKECUDA_TWINS(cuMemcpy, ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes),
               nullptr, copy_work(to, false, from, false, bytes))
FAKECUDA_TWINS(cuMemcpyAsync, ptsz,
               (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               (to, from, bytes, stream), stream, copy_work(to, false, from, false, bytes))
FAKECUDA_TWINS(cuMemcpyHtoD_v2, ptds, (CUdeviceptr to, const void* from, size_t bytes),
               (to, from, bytes), nullptr, copy_work(to, true, number(from), false, bytes))
FAKECUDA_TWINS(cuMemcpyHtoDAsync_v2, ptsz,
               (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
               (to, from, bytes, stream), stream, copy_work(to, true, number(from), false, bytes))
FAKECUDA_TWINS(cuMemcpyDtoH_v2, ptds, (void* to, CUdeviceptr from, size_t bytes), (to, from, bytes),
               nullptr, copy_work(number(to), false, from, true, bytes))
FAKECUDA_TWINS(cuMemcpyDtoHAsync_v2, ptsz,
               (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
               (to, from, bytes, stream), stream, copy_work(number(to), false, from, true, bytes))
FAKECUDA_TWINS(cuMemcpyDtoD_v2, ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
               (to, from, bytes), nullptr, copy_work(to, true, from, true, bytes))
FAKECUDA_TWINS(cuMemcpyDtoDAsync_v2, ptsz,
               (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               (to, from, bytes, stream), stream, copy_work(to, true, from, true, bytes))
FAKECUDA_TWINS(cuMemsetD8_v2, ptds, (CUdeviceptr to, unsigned char value, size_t count),
               (to, value, count), nullptr, set_work(to, value, count))
FAKECUDA_TWINS(cuMemsetD16_v2, ptds, (CUdeviceptr to, unsigned short value, size_t count),
               (to, value, count), nullptr, set_work(to, value, count))
FAKECUDA_TWINS(cuMemsetD32_v2, ptds, (CUdeviceptr to, unsigned value, size_t count),
               (to, value, count), nullptr, set_work(to, value, count))
FAKECUDA_TWINS(cuMemsetD8Async, ptsz,
               (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
               (to, value, count, stream), stream, set_work(to, value, count))
FAKECUDA_TWINS(cuMemsetD16Async, ptsz,
               (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
               (to, value, count, stream), stream, set_work(to, value, count))
FAKECUDA_TWINS(cuMemsetD32Async, ptsz,
               (CUdeviceptr to, unsigned value, size_t count, CUstream stream),
               (to, value, count, stream), stream, set_work(to, value, count))

FAKECUDA_TWINS(cuMemcpyPeer, ptds,
               (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                size_t bytes),
               (to, to_context, from, from_context, bytes), nullptr,
               copy_work(to, true, from, true, bytes))
FAKECUDA_TWINS(cuMemcpyPeerAsync, ptsz,
               (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                size_t bytes, CUstream stream),
               (to, to_context, from, from_context, bytes, stream), stream,
               copy_work(to, true, from, true, bytes))
FAKECUDA_TWINS(cuMemcpy2D_v2, ptds, (const CUDA_MEMCPY2D* copy), (copy), nullptr, rows_work(*copy))
FAKECUDA_TWINS(cuMemcpy2DUnaligned_v2, ptds, (const CUDA_MEMCPY2D* copy), (copy), nullptr,
               rows_work(*copy))
FAKECUDA_TWINS(cuMemcpy2DAsync_v2, ptsz, (const CUDA_MEMCPY2D* copy, CUstream stream),
               (copy, stream), stream, rows_work(*copy))
FAKECUDA_TWINS(cuMemcpy3D_v2, ptds, (const CUDA_MEMCPY3D* copy), (copy), nullptr, box_work(*copy))
FAKECUDA_TWINS(cuMemcpy3DAsync_v2, ptsz, (const CUDA_MEMCPY3D* copy, CUstream stream),
               (copy, stream), stream, box_work(*copy))
FAKECUDA_TWINS(cuMemcpy3DPeer, ptds, (const CUDA_MEMCPY3D_PEER* copy), (copy), nullptr,
               box_work(*copy))
FAKECUDA_TWINS(cuMemcpy3DPeerAsync, ptsz, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream),
               (copy, stream), stream, box_work(*copy))
FAKECUDA_TWINS(cuMemsetD2D8_v2, ptds,
               (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
               (to, pitch, value, width, height), nullptr,
               set_rows_work(to, pitch, value, width, height))
FAKECUDA_TWINS(cuMemsetD2D16_v2, ptds,
               (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
               (to, pitch, value, width, height), nullptr,
               set_rows_work(to, pitch, value, width, height))
FAKECUDA_TWINS(cuMemsetD2D32_v2, ptds,
               (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height),
               (to, pitch, value, width, height), nullptr,
               set_rows_work(to, pitch, value, width, height))
FAKECUDA_TWINS(cuMemsetD2D32Async, ptsz,
               (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                CUstream stream),
               (to, pitch, value, width, height, stream), stream,
               set_rows_work(to, pitch, value, width, height))
FAKECUDA_TWINS(cuMemcpyBatchAsync_v2, ptsz,
               (CUdeviceptr * to, CUdeviceptr* from, size_t* bytes, size_t count,
                CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count,
                CUstream stream),
               (to, from, bytes, count, attributes, indices, attribute_count, stream), stream,
               batch_work(to, from, bytes, count))
FAKECUDA_TWINS(cuStreamWriteValue32_v2, ptsz,
               (CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned flags),
               (stream, to, value, flags), stream, set_work<uint32_t>(to, value, 1))
#undef cuStreamWriteValue32
FAKECUDA_TWINS(cuStreamWriteValue32, ptsz,
               (CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned flags),
               (stream, to, value, flags), stream, set_work<uint32_t>(to, value, 1))
FAKECUDA_TWINS(cuStreamBatchMemOp_v2, ptsz,
               (CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags),
               (stream, count, ops, flags), stream, write_work(ops, count))
