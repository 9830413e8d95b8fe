#include "cupti/calls/callback_table.h"

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
#define CONVTRACE_OLD_LAUNCH(function) CONVTRACE_ON(function, LaunchDecoder{&decode_##function})
#define CONVTRACE_AT_EXIT(function) CONVTRACE_ON(function, ExitDecoder{&decode_##function})
#define CONVTRACE_AT_EXIT_ASYNC(function) CONVTRACE_BOTH(function, ExitDecoder{&decode_##function})
#define CONVTRACE_AT_EXIT_SYNC(function) \
  CONVTRACE_BOTH_SYNC(function, ExitDecoder{&decode_##function})
#define CONVTRACE_FREE(function) CONVTRACE_ON(function, MemoryDecoder{&decode_##function})
#define CONVTRACE_FREE_ASYNC(function) CONVTRACE_BOTH(function, MemoryDecoder{&decode_##function})
#define CONVTRACE_BATCH(function) \
  CONVTRACE_BOTH(function, MemoryBatch{&count_##function, &decode_##function})
#define CONVTRACE_HANDLE(function) CONVTRACE_ON(function, HandleDecoder{&decode_##function})
#define CONVTRACE_SYNC(function) CONVTRACE_ON(function, SyncDecoder{&decode_##function})
#define CONVTRACE_SYNC_STREAM(function) CONVTRACE_BOTH(function, SyncDecoder{&decode_##function})
#define CONVTRACE_SYNC_END(function) CONVTRACE_ON(function, EndDecoder{&decode_##function})
#define CONVTRACE_TENSOR_MAP(function) CONVTRACE_ON(function, TensorMapDecoder{&decode_##function})

/// A row of the lists of the decoders' headers.
#define CONVTRACE_ROW(how, function) CONVTRACE_##how(function),

/// The first version of a function that cuda.h renames to a later version, so it cannot be named
/// above.
#define CONVTRACE_FIRST(number, per_thread_number, ...) \
  CallbackEntry{number, __VA_ARGS__, false}, CallbackEntry { per_thread_number, __VA_ARGS__, true }

// Not in the table, because they neither allocate, free nor write memory: cuMemAddressReserve
// (address space only), cuMemSetAccess, cuMemPoolTrimTo, cuMemPoolDestroy (its memory lives until
// it is freed), cuDestroyExternalMemory (its mappings are freed by cuMemFree), the cuMulticastBind
// calls (the bound memory gets no address there), prefetches and advice.
constexpr CallbackEntry kDriverCallbacks[] = {
    CONVTRACE_LAUNCH(cuLaunchKernel),
    CONVTRACE_LAUNCH(cuLaunchKernelEx),
    CONVTRACE_LAUNCH(cuLaunchCooperativeKernel),
    CONVTRACE_LAUNCH(cuGraphLaunch),
    CONVTRACE_ON(cuLaunchCooperativeKernelMultiDevice,
                 LaunchBatch{&count_cuLaunchCooperativeKernelMultiDevice,
                             &decode_cuLaunchCooperativeKernelMultiDevice}),
    CONVTRACE_OLD_LAUNCH(cuLaunch),
    CONVTRACE_OLD_LAUNCH(cuLaunchGrid),
    CONVTRACE_OLD_LAUNCH(cuLaunchGridAsync),

    CONVTRACE_MEMORY_CALLS(CONVTRACE_ROW)

        CONVTRACE_COPY_CALLS(CONVTRACE_ROW) CONVTRACE_FIRST(
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync,
            CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_ptsz,
            MemoryBatch{&count_cuMemcpyBatchAsync_v1, &decode_cuMemcpyBatchAsync_v1}),
    CONVTRACE_FIRST(CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync,
                    CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync_ptsz,
                    MemoryBatch{&count_cuMemcpy3DBatchAsync_v1, &decode_cuMemcpy3DBatchAsync_v1}),
    CONVTRACE_BATCH(cuMemcpyBatchAsync_v2),
    CONVTRACE_BATCH(cuMemcpy3DBatchAsync_v2),
    CONVTRACE_BATCH(cuMemBatchDecompressAsync),
    // The version that the CUDA runtime and PyTorch request (8000); its parameters are those of the
    // second.
    CONVTRACE_FIRST(CUPTI_DRIVER_TRACE_CBID_cuStreamWriteValue32,
                    CUPTI_DRIVER_TRACE_CBID_cuStreamWriteValue32_ptsz,
                    ExitDecoder{&decode_cuStreamWriteValue32_v2}),
    CONVTRACE_FIRST(CUPTI_DRIVER_TRACE_CBID_cuStreamWriteValue64,
                    CUPTI_DRIVER_TRACE_CBID_cuStreamWriteValue64_ptsz,
                    ExitDecoder{&decode_cuStreamWriteValue64_v2}),
    CONVTRACE_FIRST(CUPTI_DRIVER_TRACE_CBID_cuStreamBatchMemOp,
                    CUPTI_DRIVER_TRACE_CBID_cuStreamBatchMemOp_ptsz,
                    MemoryBatch{&count_cuStreamBatchMemOp_v2, &decode_cuStreamBatchMemOp_v2}),
    CONVTRACE_BATCH(cuStreamBatchMemOp_v2),
    CONVTRACE_BATCH(cuMemDiscardBatchAsync),
    CONVTRACE_BATCH(cuMemDiscardAndPrefetchBatchAsync),

    CONVTRACE_TENSOR_MAP(cuTensorMapEncodeTiled),
    CONVTRACE_TENSOR_MAP(cuTensorMapEncodeIm2col),
    CONVTRACE_TENSOR_MAP(cuTensorMapEncodeIm2colWide),
    CONVTRACE_TENSOR_MAP(cuTensorMapReplaceAddress),

    CONVTRACE_HANDLE(cuModuleGetFunction),
    CONVTRACE_HANDLE(cuModuleEnumerateFunctions),
    CONVTRACE_HANDLE(cuModuleUnload),
    CONVTRACE_HANDLE(cuLibraryGetModule),
    CONVTRACE_HANDLE(cuLibraryGetKernel),
    CONVTRACE_HANDLE(cuLibraryEnumerateKernels),
    CONVTRACE_HANDLE(cuLibraryUnload),
    CONVTRACE_HANDLE(cuKernelGetFunction),

    CONVTRACE_FIRST(CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture,
                    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz,
                    CaptureDecoder{&decode_cuStreamBeginCapture}),
    CONVTRACE_BOTH(cuStreamBeginCapture_v2, CaptureDecoder{&decode_cuStreamBeginCapture}),
    CONVTRACE_BOTH(cuStreamBeginCaptureToGraph,
                   CaptureDecoder{&decode_cuStreamBeginCaptureToGraph}),
    CONVTRACE_BOTH(cuStreamEndCapture, CaptureDecoder{&decode_cuStreamEndCapture}),

    CONVTRACE_SYNC_CALLS(CONVTRACE_ROW){CUPTI_DRIVER_TRACE_CBID_cuEventElapsedTime,
                                        SyncDecoder{&decode_cuEventElapsedTime_v2}, false},
    CONVTRACE_FIRST(CUPTI_DRIVER_TRACE_CBID_cuStreamWaitValue32,
                    CUPTI_DRIVER_TRACE_CBID_cuStreamWaitValue32_ptsz,
                    SyncDecoder{&decode_cuStreamWaitValue32_v2}),
    CONVTRACE_FIRST(CUPTI_DRIVER_TRACE_CBID_cuStreamWaitValue64,
                    CUPTI_DRIVER_TRACE_CBID_cuStreamWaitValue64_ptsz,
                    SyncDecoder{&decode_cuStreamWaitValue64_v2}),

    CONVTRACE_ON(cuIpcGetMemHandle, SharingCall{}),
    CONVTRACE_ON(cuMemExportToShareableHandle, SharingCall{}),
    CONVTRACE_ON(cuMemPoolExportToShareableHandle, SharingCall{}),
    CONVTRACE_ON(cuMemPoolExportPointer, SharingCall{}),
    CONVTRACE_ON(cuMemGetHandleForAddressRange, SharingCall{}),
    // Pools may be of managed memory.
    CONVTRACE_ON(cuMemPoolCreate, SharingCall{}),
    CONVTRACE_ON(cuMemGetDefaultMemPool, SharingCall{}),
    CONVTRACE_ON(cuMemGetMemPool, SharingCall{}),

    CONVTRACE_ON(cuCtxCreate_v2, ContextCall{}),
    CONVTRACE_ON(cuCtxCreate_v3, ContextCall{}),
    CONVTRACE_ON(cuCtxCreate_v4, ContextCall{}),
    CONVTRACE_ON(cuCtxSetCurrent, ContextCall{}),
    CONVTRACE_ON(cuCtxPushCurrent_v2, ContextCall{}),
    CONVTRACE_ON(cuCtxDestroy_v2, ContextEnd{}),
    CONVTRACE_ON(cuDevicePrimaryCtxReset, ContextEnd{}),
    CONVTRACE_ON(cuDevicePrimaryCtxReset_v2, ContextEnd{}),
    CONVTRACE_ON(cuDevicePrimaryCtxRelease, ContextEnd{}),
    CONVTRACE_ON(cuDevicePrimaryCtxRelease_v2, ContextEnd{}),
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
