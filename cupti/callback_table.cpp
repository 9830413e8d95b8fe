#include "cupti/callback_table.h"

#include <array>
#include <iterator>

namespace convtrace::cupti {
namespace {

#define CONVTRACE_ON(function, ...) \
  CallbackEntry { CUPTI_DRIVER_TRACE_CBID_##function, __VA_ARGS__, false }
#define CONVTRACE_ON_PTSZ(function, ...) \
  CallbackEntry { CUPTI_DRIVER_TRACE_CBID_##function##_ptsz, __VA_ARGS__, true }
#define CONVTRACE_ON_PTDS(function, ...) \
  CallbackEntry { CUPTI_DRIVER_TRACE_CBID_##function##_ptds, __VA_ARGS__, true }
#define CONVTRACE_BOTH(function, ...) \
  CONVTRACE_ON(function, __VA_ARGS__), CONVTRACE_ON_PTSZ(function, __VA_ARGS__)
#define CONVTRACE_BOTH_SYNC(function, ...) \
  CONVTRACE_ON(function, __VA_ARGS__), CONVTRACE_ON_PTDS(function, __VA_ARGS__)
#define CONVTRACE_LAUNCH(function) CONVTRACE_BOTH(function, LaunchDecoder{&decode_##function})
#define CONVTRACE_ALLOC(function) CONVTRACE_ON(function, AllocDecoder{&decode_##function})
#define CONVTRACE_ALLOC_ASYNC(function) CONVTRACE_BOTH(function, AllocDecoder{&decode_##function})
#define CONVTRACE_MEMORY(function) CONVTRACE_ON(function, MemoryDecoder{&decode_##function})
#define CONVTRACE_MEMORY_ASYNC(function) CONVTRACE_BOTH(function, MemoryDecoder{&decode_##function})
#define CONVTRACE_MEMORY_SYNC(function) \
  CONVTRACE_BOTH_SYNC(function, MemoryDecoder{&decode_##function})
#define CONVTRACE_HANDLE(function) CONVTRACE_ON(function, HandleDecoder{&decode_##function})

constexpr CallbackEntry kDriverCallbacks[] = {
    CONVTRACE_LAUNCH(cuLaunchKernel),
    CONVTRACE_LAUNCH(cuLaunchKernelEx),
    CONVTRACE_LAUNCH(cuLaunchCooperativeKernel),
    CONVTRACE_LAUNCH(cuGraphLaunch),

    CONVTRACE_ALLOC(cuMemAlloc_v2),
    CONVTRACE_ALLOC(cuMemAllocPitch_v2),
    CONVTRACE_ALLOC(cuMemAllocManaged),
    CONVTRACE_ALLOC_ASYNC(cuMemAllocAsync),
    CONVTRACE_ALLOC_ASYNC(cuMemAllocFromPoolAsync),
    CONVTRACE_ALLOC(cuMemAllocHost_v2),
    CONVTRACE_ALLOC(cuMemHostAlloc),
    CONVTRACE_ALLOC(cuMemHostRegister_v2),
    CONVTRACE_ALLOC(cuMemMap),
    CONVTRACE_ALLOC(cuIpcOpenMemHandle_v2),
    CONVTRACE_ALLOC(cuExternalMemoryGetMappedBuffer),
    CONVTRACE_ALLOC(cuMemPoolImportPointer),
    CONVTRACE_MEMORY(cuMemFree_v2),
    CONVTRACE_MEMORY_ASYNC(cuMemFreeAsync),
    CONVTRACE_MEMORY(cuMemFreeHost),
    CONVTRACE_MEMORY(cuMemHostUnregister),
    CONVTRACE_MEMORY(cuMemUnmap),
    CONVTRACE_MEMORY(cuIpcCloseMemHandle),

    CONVTRACE_MEMORY_SYNC(cuMemcpy),
    CONVTRACE_MEMORY_ASYNC(cuMemcpyAsync),
    CONVTRACE_MEMORY_SYNC(cuMemcpyHtoD_v2),
    CONVTRACE_MEMORY_ASYNC(cuMemcpyHtoDAsync_v2),
    CONVTRACE_MEMORY_SYNC(cuMemcpyDtoD_v2),
    CONVTRACE_MEMORY_ASYNC(cuMemcpyDtoDAsync_v2),
    CONVTRACE_MEMORY_ASYNC(cuMemcpyPeerAsync),
    CONVTRACE_MEMORY_SYNC(cuMemsetD8_v2),
    CONVTRACE_MEMORY_SYNC(cuMemsetD16_v2),
    CONVTRACE_MEMORY_SYNC(cuMemsetD32_v2),
    CONVTRACE_MEMORY_ASYNC(cuMemsetD8Async),
    CONVTRACE_MEMORY_ASYNC(cuMemsetD16Async),
    CONVTRACE_MEMORY_ASYNC(cuMemsetD32Async),

    CONVTRACE_HANDLE(cuModuleGetFunction),
    CONVTRACE_HANDLE(cuModuleEnumerateFunctions),
    CONVTRACE_HANDLE(cuModuleUnload),
    CONVTRACE_HANDLE(cuLibraryGetKernel),
    CONVTRACE_HANDLE(cuLibraryEnumerateKernels),
    CONVTRACE_HANDLE(cuLibraryUnload),
    CONVTRACE_HANDLE(cuKernelGetFunction),

    // By number, not by macro: cuda.h renames the first version of this one.
    CallbackEntry{CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture,
                  CaptureDecoder{&decode_cuStreamBeginCapture}, false},
    CallbackEntry{CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz,
                  CaptureDecoder{&decode_cuStreamBeginCapture}, true},
    CONVTRACE_BOTH(cuStreamBeginCapture_v2, CaptureDecoder{&decode_cuStreamBeginCapture}),
    CONVTRACE_BOTH(cuStreamBeginCaptureToGraph,
                   CaptureDecoder{&decode_cuStreamBeginCaptureToGraph}),
    CONVTRACE_BOTH(cuStreamEndCapture, CaptureDecoder{&decode_cuStreamEndCapture}),

    CONVTRACE_ON(cuCtxCreate_v2, ContextCall{}),
    CONVTRACE_ON(cuCtxCreate_v3, ContextCall{}),
    CONVTRACE_ON(cuCtxCreate_v4, ContextCall{}),
    CONVTRACE_ON(cuCtxSetCurrent, ContextCall{}),
    CONVTRACE_ON(cuCtxPushCurrent_v2, ContextCall{}),
};

static_assert(std::size(kDriverCallbacks) < 0xff);

constexpr uint8_t kNoEntry = 0xff;

constexpr auto make_index() {
  std::array<uint8_t, CUPTI_DRIVER_TRACE_CBID_SIZE> index{};
  for (auto& slot : index) slot = kNoEntry;
  for (size_t i = 0; i < std::size(kDriverCallbacks); ++i)
    index[kDriverCallbacks[i].cbid] = static_cast<uint8_t>(i);
  return index;
}

constexpr auto kIndex = make_index();

}  // namespace

std::span<const CallbackEntry> driver_callbacks() noexcept { return kDriverCallbacks; }

const CallbackEntry* find_driver_callback(CUpti_CallbackId cbid) noexcept {
  if (cbid >= kIndex.size() || kIndex[cbid] == kNoEntry) return nullptr;
  return &kDriverCallbacks[kIndex[cbid]];
}

}  // namespace convtrace::cupti
