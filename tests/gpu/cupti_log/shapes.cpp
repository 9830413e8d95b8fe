#include "tests/gpu/cupti_log/shapes.h"

#include <cupti.h>

#include <cstddef>
#include <map>
#include <type_traits>
#include <utility>

namespace convtrace::cupti_log {
namespace {

using namespace cupti;

// The batches of CUDA 12 have the first names in the headers, which have them renamed.
using cuMemcpyBatchAsync_v1_params = cuMemcpyBatchAsync_params;
using cuMemcpy3DBatchAsync_v1_params = cuMemcpy3DBatchAsync_params;
using cuStreamBeginCapture_params = cuStreamBeginCapture_v2_params;

/// Twins of a function share its decoder, and so the decoder names the shape.
template <typename Decoder>
const void* key(Decoder decoder) {
  return reinterpret_cast<const void*>(decoder);
}

template <typename Params, typename Item>
constexpr size_t item_bytes(Item* Params::*) {
  return sizeof(Item);
}

#define FIELD(function, field) offsetof(function##_params, field)
#define ONE(function, field) \
  Pointee { FIELD(function, field), item_bytes(&function##_params::field) }
#define POINTED(function, field) \
  Pointee { FIELD(function, field), item_bytes(&function##_params::field), 0, 0, true }
#define TEXT(function, field) \
  Pointee { FIELD(function, field), 0, 0, 0, true }
#define MANY(function, field, count)                                                       \
  Pointee {                                                                                \
    FIELD(function, field), item_bytes(&function##_params::field), FIELD(function, count), \
        sizeof(function##_params::count), true                                             \
  }

using Shapes = std::map<const void*, Shape>;

void add_memory(Shapes& all) {
  all[key(&decode_cuMemAlloc_v2)].pointees = {ONE(cuMemAlloc_v2, dptr)};
  all[key(&decode_cuMemAllocPitch_v2)].pointees = {ONE(cuMemAllocPitch_v2, dptr),
                                                   ONE(cuMemAllocPitch_v2, pPitch)};
  all[key(&decode_cuMemAllocManaged)].pointees = {ONE(cuMemAllocManaged, dptr)};
  all[key(&decode_cuMemAllocAsync)].pointees = {ONE(cuMemAllocAsync, dptr)};
  all[key(&decode_cuMemAllocFromPoolAsync)].pointees = {ONE(cuMemAllocFromPoolAsync, dptr)};
  all[key(&decode_cuMemAllocHost_v2)].pointees = {ONE(cuMemAllocHost_v2, pp)};
  all[key(&decode_cuMemHostAlloc)].pointees = {ONE(cuMemHostAlloc, pp)};
  all[key(&decode_cuMemHostGetDevicePointer_v2)].pointees = {
      ONE(cuMemHostGetDevicePointer_v2, pdptr)};
  all[key(&decode_cuIpcOpenMemHandle_v2)].pointees = {ONE(cuIpcOpenMemHandle_v2, pdptr)};
  all[key(&decode_cuExternalMemoryGetMappedBuffer)].pointees = {
      ONE(cuExternalMemoryGetMappedBuffer, devPtr),
      POINTED(cuExternalMemoryGetMappedBuffer, bufferDesc)};
  all[key(&decode_cuMemPoolImportPointer)].pointees = {ONE(cuMemPoolImportPointer, ptr_out)};
  all[key(&decode_cuMemCreate)].pointees = {ONE(cuMemCreate, handle), POINTED(cuMemCreate, prop)};
  all[key(&decode_cuMemImportFromShareableHandle)].pointees = {
      ONE(cuMemImportFromShareableHandle, handle)};
  all[key(&decode_cuMulticastCreate)].pointees = {ONE(cuMulticastCreate, mcHandle)};
  all[key(&decode_cuMemRetainAllocationHandle)].pointees = {
      ONE(cuMemRetainAllocationHandle, handle)};
}

void add_copies(Shapes& all) {
  all[key(&decode_cuMemcpy2D_v2)].pointees = {POINTED(cuMemcpy2D_v2, pCopy)};
  all[key(&decode_cuMemcpy2DUnaligned_v2)].pointees = {POINTED(cuMemcpy2DUnaligned_v2, pCopy)};
  all[key(&decode_cuMemcpy2DAsync_v2)].pointees = {POINTED(cuMemcpy2DAsync_v2, pCopy)};
  all[key(&decode_cuMemcpy3D_v2)].pointees = {POINTED(cuMemcpy3D_v2, pCopy)};
  all[key(&decode_cuMemcpy3DAsync_v2)].pointees = {POINTED(cuMemcpy3DAsync_v2, pCopy)};
  all[key(&decode_cuMemcpy3DPeer)].pointees = {POINTED(cuMemcpy3DPeer, pCopy)};
  all[key(&decode_cuMemcpy3DPeerAsync)].pointees = {POINTED(cuMemcpy3DPeerAsync, pCopy)};
#define COPY_BATCH(function)                \
  all[key(&decode_##function)].pointees = { \
      MANY(function, dsts, count), MANY(function, srcs, count), MANY(function, sizes, count)}
  COPY_BATCH(cuMemcpyBatchAsync_v1);
  COPY_BATCH(cuMemcpyBatchAsync_v2);
#undef COPY_BATCH
  all[key(&decode_cuMemcpy3DBatchAsync_v1)].pointees = {
      MANY(cuMemcpy3DBatchAsync_v1, opList, numOps)};
  all[key(&decode_cuMemcpy3DBatchAsync_v2)].pointees = {
      MANY(cuMemcpy3DBatchAsync_v2, opList, numOps)};
  all[key(&decode_cuMemBatchDecompressAsync)].pointees = {
      MANY(cuMemBatchDecompressAsync, paramsArray, count)};
  all[key(&decode_cuStreamBatchMemOp_v2)].pointees = {
      MANY(cuStreamBatchMemOp_v2, paramArray, count)};
#define DISCARD_BATCH(function)                                          \
  all[key(&decode_##function)].pointees = {MANY(function, dptrs, count), \
                                           MANY(function, sizes, count)}
  DISCARD_BATCH(cuMemDiscardBatchAsync);
  DISCARD_BATCH(cuMemDiscardAndPrefetchBatchAsync);
#undef DISCARD_BATCH
}

void add_handles(Shapes& all) {
#define SIZED(function, ...)                   \
  all[key(&decode_##function)] = Shape {       \
    sizeof(function##_params), { __VA_ARGS__ } \
  }
  SIZED(cuModuleGetFunction, ONE(cuModuleGetFunction, hfunc), TEXT(cuModuleGetFunction, name));
  SIZED(cuModuleEnumerateFunctions, MANY(cuModuleEnumerateFunctions, functions, numFunctions));
  SIZED(cuModuleUnload);
  SIZED(cuLibraryGetModule, ONE(cuLibraryGetModule, pMod));
  SIZED(cuLibraryGetKernel, ONE(cuLibraryGetKernel, pKernel), TEXT(cuLibraryGetKernel, name));
  SIZED(cuLibraryEnumerateKernels, MANY(cuLibraryEnumerateKernels, kernels, numKernels));
  SIZED(cuLibraryUnload);
  SIZED(cuKernelGetFunction, ONE(cuKernelGetFunction, pFunc));
  SIZED(cuStreamBeginCapture);
  SIZED(cuStreamBeginCaptureToGraph);
  SIZED(cuStreamEndCapture);
  SIZED(cuTensorMapEncodeTiled, ONE(cuTensorMapEncodeTiled, tensorMap));
  SIZED(cuTensorMapEncodeIm2col, ONE(cuTensorMapEncodeIm2col, tensorMap));
  SIZED(cuTensorMapEncodeIm2colWide, ONE(cuTensorMapEncodeIm2colWide, tensorMap));
  SIZED(cuTensorMapReplaceAddress, ONE(cuTensorMapReplaceAddress, tensorMap));
}

void add_launches(Shapes& all) {
  SIZED(cuLaunchKernel);
  SIZED(cuLaunchKernelEx, POINTED(cuLaunchKernelEx, config));
  SIZED(cuLaunchCooperativeKernel);
  SIZED(cuGraphLaunch);
  SIZED(cuLaunch);
  SIZED(cuLaunchGrid);
  SIZED(cuLaunchGridAsync);
  SIZED(cuLaunchCooperativeKernelMultiDevice,
        MANY(cuLaunchCooperativeKernelMultiDevice, launchParamsList, numDevices));
#undef SIZED
}

void add_syncs(Shapes& all) {
  all[key(&decode_cuCtxSynchronize)] = Shape{};
  all[key(&decode_cuEventCreate)].pointees = {ONE(cuEventCreate, phEvent)};
  all[key(&decode_cuIpcOpenEventHandle)].pointees = {ONE(cuIpcOpenEventHandle, phEvent)};
  all[key(&decode_cuStreamCreate)].pointees = {ONE(cuStreamCreate, phStream)};
  all[key(&decode_cuStreamCreateWithPriority)].pointees = {
      ONE(cuStreamCreateWithPriority, phStream)};
  all[key(&decode_cuGreenCtxStreamCreate)].pointees = {ONE(cuGreenCtxStreamCreate, phStream)};
}

/// It has no parameters, and the lists want a structure of every call.
struct cuCtxSynchronize_params {};

Shapes make_shapes() {
  Shapes all;
#define SIZED(function) all[key(&decode_##function)].bytes = sizeof(function##_params);
#define LISTED(how, function) SIZED(function)
  CONVTRACE_MEMORY_CALLS(LISTED)
  CONVTRACE_COPY_CALLS(LISTED)
  CONVTRACE_COPY_BATCHES(SIZED)
  CONVTRACE_SYNC_CALLS(LISTED)
#undef LISTED
#undef SIZED
  add_memory(all);
  add_copies(all);
  add_handles(all);
  add_launches(all);
  add_syncs(all);
  return all;
}

struct Finder {
  const Shapes& all;
  const Shape none{};

  const Shape* find(const void* decoder) const {
    const auto it = all.find(decoder);
    return it == all.end() ? nullptr : &it->second;
  }
  const Shape* operator()(ContextCall) const { return &none; }
  const Shape* operator()(ContextEnd) const { return &none; }
  const Shape* operator()(SharingCall) const { return &none; }
  const Shape* operator()(ExitDecoder decoder) const { return find(key(decoder.decode)); }
  const Shape* operator()(EndDecoder decoder) const { return find(key(decoder.decode)); }
  template <typename Item>
  const Shape* operator()(const BatchDecoder<Item>& batch) const {
    return find(key(batch.decode));
  }
  template <typename Decoder>
  requires std::is_pointer_v<Decoder>
  const Shape* operator()(Decoder decoder) const { return find(key(decoder)); }
};

}  // namespace

const Shape* find_shape(const CallbackEntry& entry) {
  static const auto* const all = new Shapes(make_shapes());  // callbacks come after exit handlers
  static const auto* const finder = new Finder{*all};
  return std::visit(*finder, entry.decoder);
}

}  // namespace convtrace::cupti_log
