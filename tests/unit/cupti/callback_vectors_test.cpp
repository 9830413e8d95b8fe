// Every row of the callback table, fed with made-up parameters: what it is decoded to, in one line.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/cupti/callback_text.h"

namespace convtrace::cupti {
namespace {

template <typename T>
T handle(uintptr_t value) {
  return reinterpret_cast<T>(value);  // an opaque number, never followed
}

struct Vector {
  CUpti_CallbackId cbid;
  std::shared_ptr<const void> params;
  std::string expected;
};

template <typename Params>
Vector vector(CUpti_CallbackId cbid, const Params& params, std::string expected) {
  return {cbid, std::make_shared<Params>(params), std::move(expected)};
}

// The per-thread variant's structure must be the plain one's, since they share a decoder.
#define CBID(function) CUPTI_DRIVER_TRACE_CBID_##function
#define ONE(function, expected, ...) \
  all.push_back(vector(CBID(function), function##_params{__VA_ARGS__}, expected))
#define PER_THREAD_VARIANT(function, variant, expected, ...)            \
  static_assert(sizeof(function##_params) == sizeof(variant##_params)); \
  ONE(function, expected, __VA_ARGS__);                                 \
  all.push_back(vector(CBID(variant), function##_params{__VA_ARGS__}, expected))
#define PTSZ(function, expected, ...) \
  PER_THREAD_VARIANT(function, function##_ptsz, expected, __VA_ARGS__)
#define PTDS(function, expected, ...) \
  PER_THREAD_VARIANT(function, function##_ptds, expected, __VA_ARGS__)

CUstream const kStream = handle<CUstream>(0x77);
CUfunction const kFunction = handle<CUfunction>(7);
void** const kParams = handle<void**>(0x100);
void** const kExtra = handle<void**>(0x200);

void add_launches(std::vector<Vector>& all) {
  PTSZ(cuLaunchKernel,
       "launch f7 grid 1 2 3 block 4 5 6 shared 80 stream 0x77 params 0x100 extra 0x200", kFunction,
       1, 2, 3, 4, 5, 6, 128, kStream, kParams, kExtra);
  static CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  static const CUlaunchConfig config{1, 2, 3, 4, 5, 6, 128, kStream, attributes, 2};
  PTSZ(cuLaunchKernelEx,
       "launch f7 grid 1 2 3 block 4 5 6 shared 80 stream 0x77 params 0x100 extra 0x200", &config,
       kFunction, kParams, kExtra);
  PTSZ(cuLaunchCooperativeKernel,
       "launch f7 grid 1 2 3 block 4 5 6 shared 80 stream 0x77 params 0x100", kFunction, 1, 2, 3, 4,
       5, 6, 128, kStream, kParams);
  PTSZ(cuGraphLaunch, "launch f0 grid 0 0 0 block 0 0 0 shared 0 stream 0x77",
       handle<CUgraphExec>(3), kStream);
  static CUDA_LAUNCH_PARAMS devices[2] = {{kFunction, 1, 1, 1, 32, 1, 1, 0, kStream, kParams},
                                          {kFunction, 2, 1, 1, 32, 1, 1, 0, nullptr, nullptr}};
  ONE(cuLaunchCooperativeKernelMultiDevice,
      "launch f7 grid 1 1 1 block 20 1 1 shared 0 stream 0x77 params 0x100; "
      "launch f7 grid 2 1 1 block 20 1 1 shared 0 stream 0; ",
      devices, 2, 0);
  ONE(cuLaunch, "launch f7 grid 1 1 1 block 0 0 0 shared 0 stream 0", kFunction);
  ONE(cuLaunchGrid, "launch f7 grid 8 9 1 block 0 0 0 shared 0 stream 0", kFunction, 8, 9);
  ONE(cuLaunchGridAsync, "launch f7 grid 8 9 1 block 0 0 0 shared 0 stream 0x77", kFunction, 8, 9,
      kStream);
}

void add_allocations(std::vector<Vector>& all) {
  static CUdeviceptr address = 0x7000;
  static size_t pitch = 0x200;
  static void* host = handle<void*>(0x9000);
  ONE(cuMemAlloc_v2, "at exit: alloc driver 7000+64", &address, 100);
  ONE(cuMemAllocPitch_v2, "at exit: alloc driver 7000+600", &address, &pitch, 500, 3, 4);
  ONE(cuMemAllocManaged, "at exit: alloc driver 7000+64", &address, 100, 1);
  PTSZ(cuMemAllocAsync, "at exit: alloc stream-ordered 7000+64 stream 0x77", &address, 100,
       kStream);
  PTSZ(cuMemAllocFromPoolAsync, "at exit: alloc stream-ordered 7000+64 stream 0x77", &address, 100,
       handle<CUmemoryPool>(1), kStream);
  ONE(cuMemAllocHost_v2, "at exit: alloc host 9000+64", &host, 100);
  ONE(cuMemHostAlloc, "at exit: alloc host 9000+64", &host, 100, 0);
  ONE(cuMemHostRegister_v2, "at exit: alloc host 9000+64", host, 100, 0);
  ONE(cuMemHostGetDevicePointer_v2, "at exit: alias host 7000+0 source 9000", &address, host, 0);
  ONE(cuIpcOpenMemHandle_v2, "at exit: alloc foreign 7000+0", &address, {}, 0);
  static const CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{0x10, 0x500, 0, {}};
  ONE(cuExternalMemoryGetMappedBuffer, "at exit: alloc foreign 7000+500", &address,
      handle<CUexternalMemory>(1), &buffer);
  ONE(cuMemPoolImportPointer, "at exit: alloc foreign 7000+0", &address, handle<CUmemoryPool>(1),
      nullptr);
  ONE(cuMemFree_v2, "free driver 7000+0", 0x7000);
  PTSZ(cuMemFreeAsync, "free stream-ordered 7000+0 stream 0x77", 0x7000, kStream);
  ONE(cuMemFreeHost, "free host 9000+0", host);
  ONE(cuMemHostUnregister, "free host 9000+0", host);
  ONE(cuIpcCloseMemHandle, "free foreign 7000+0", 0x7000);
}

void add_virtual_memory(std::vector<Vector>& all) {
  static CUmemGenericAllocationHandle made = 0x55;
  static CUmemAllocationProp on_device{};
  on_device.location = {CU_MEM_LOCATION_TYPE_DEVICE, 3};
  static CUmemAllocationProp on_host{};
  on_host.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 1};
  ONE(cuMemCreate, "at exit: create virtual 0+0 handle 55 cuda:3", &made, 0x200000, &on_device, 0);
  CHECK(text(decode_cuMemCreate(
            std::make_unique<cuMemCreate_params>(cuMemCreate_params{&made, 0x200000, &on_host, 0})
                .get())) == "create virtual 0+0 handle 55 cpu");
  ONE(cuMemImportFromShareableHandle, "at exit: create foreign 0+0 handle 55", &made, nullptr,
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  ONE(cuMulticastCreate, "at exit: create multicast 0+0 handle 55", &made, nullptr);
  ONE(cuMemRetainAllocationHandle, "at exit: retain virtual 0+0 handle 55", &made, nullptr);
  ONE(cuMemRelease, "release virtual 0+0 handle 55", made);
  ONE(cuMemMap, "at exit: alloc virtual 7000+200 handle 55", 0x7000, 0x200, 0, made, 0);
  ONE(cuMemUnmap, "unmap virtual 7000+200", 0x7000, 0x200);
  ONE(cuMemAddressFree, "unmap virtual 7000+200", 0x7000, 0x200);
}

void add_copies(std::vector<Vector>& all) {
  void* const host = handle<void*>(0x9000);
  PTDS(cuMemcpy, "at exit: copy driver 7000+40 source 8000 waits", 0x7000, 0x8000, 64);
  PTSZ(cuMemcpyAsync, "at exit: copy driver 7000+40 source 8000 stream 0x77", 0x7000, 0x8000, 64,
       kStream);
  PTDS(cuMemcpyHtoD_v2, "at exit: copy driver 7000+40 source 9000 waits", 0x7000, host, 64);
  PTDS(cuMemcpyDtoH_v2, "at exit: nothing waits", host, 0x7000, 64);
  PTDS(cuMemcpyAtoH_v2, "at exit: nothing waits", host, handle<CUarray>(1), 8, 64);
  PTSZ(cuMemcpyHtoDAsync_v2, "at exit: copy driver 7000+40 source 9000 stream 0x77", 0x7000, host,
       64, kStream);
  PTSZ(cuMemcpyDtoHAsync_v2, "at exit: to-host host 9000+40 stream 0x77", host, 0x7000, 64,
       kStream);
  PTDS(cuMemcpyDtoD_v2, "at exit: copy driver 7000+40 source 8000", 0x7000, 0x8000, 64);
  PTSZ(cuMemcpyDtoDAsync_v2, "at exit: copy driver 7000+40 source 8000 stream 0x77", 0x7000, 0x8000,
       64, kStream);
  PTDS(cuMemcpyPeer, "at exit: copy driver 7000+40 source 8000", 0x7000, nullptr, 0x8000, nullptr,
       64);
  PTSZ(cuMemcpyPeerAsync, "at exit: copy driver 7000+40 source 8000 stream 0x77", 0x7000, nullptr,
       0x8000, nullptr, 64, kStream);
  PTDS(cuMemcpyAtoD_v2, "at exit: copy driver 7000+40", 0x7000, handle<CUarray>(1), 8, 64);

  static CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = host;
  rows.srcPitch = 16;
  rows.srcY = 1;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = 0x7000;
  rows.dstXInBytes = 4;
  rows.dstY = 2;
  rows.dstPitch = 0x100;
  rows.WidthInBytes = 8;
  rows.Height = 3;
  PTDS(cuMemcpy2D_v2, "at exit: copy driver 7204+208 source 9010 waits", &rows);
  PTDS(cuMemcpy2DUnaligned_v2, "at exit: copy driver 7204+208 source 9010 waits", &rows);
  PTSZ(cuMemcpy2DAsync_v2, "at exit: copy driver 7204+208 source 9010 stream 0x77", &rows, kStream);

  static CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.srcDevice = 0x8000;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = 0x7000;
  box.dstZ = 1;
  box.dstPitch = 0x10;
  box.dstHeight = 4;
  box.WidthInBytes = 8;
  box.Height = 2;
  box.Depth = 2;
  PTDS(cuMemcpy3D_v2, "at exit: copy driver 7040+58 source 8000 waits", &box);
  PTSZ(cuMemcpy3DAsync_v2, "at exit: copy driver 7040+58 source 8000 stream 0x77", &box, kStream);
  static CUDA_MEMCPY3D_PEER peer{};
  peer.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  peer.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  peer.dstDevice = 0x7000;
  peer.WidthInBytes = peer.Height = peer.Depth = 1;
  PTDS(cuMemcpy3DPeer, "at exit: copy driver 7000+1", &peer);
  PTSZ(cuMemcpy3DPeerAsync, "at exit: copy driver 7000+1 stream 0x77", &peer, kStream);
}

void add_batches(std::vector<Vector>& all) {
  static CUdeviceptr to[2] = {0x7000, 0x7100};
  static CUdeviceptr from[2] = {0x8000, 0x8100};
  static size_t bytes[2] = {16, 32};
  const std::string copies =
      "copy driver 7000+10 source 8000 stream 0x77; copy driver 7100+20 source 8100 stream 0x77; ";
  const cuMemcpyBatchAsync_params first{to, from, bytes, 2, nullptr, nullptr, 0, nullptr, kStream};
  all.push_back(vector(776, first, copies));
  all.push_back(vector(777, first, copies));
  PTSZ(cuMemcpyBatchAsync_v2, copies, to, from, bytes, 2, nullptr, nullptr, 0, kStream);

  static CUDA_MEMCPY3D_BATCH_OP ops[4] = {};
  for (auto& op : ops) {
    op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    op.src.op.ptr.ptr = 0x8000;
    op.dst.op.ptr.ptr = 0x7000;
    op.extent = {8, 2, 3};
  }
  ops[1].dst.op.ptr.rowLength = 0x10;
  ops[1].dst.op.ptr.layerHeight = 4;
  ops[2].src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  ops[3].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  const std::string boxes =
      "copy driver 7000+30 source 8000 stream 0x77; copy driver 7000+98 source 8000 stream 0x77; "
      "copy driver 7000+0 stream 0x77; nothing; ";
  const cuMemcpy3DBatchAsync_params first_boxes{4, ops, nullptr, 0, kStream};
  all.push_back(vector(778, first_boxes, boxes));
  all.push_back(vector(779, first_boxes, boxes));
  PTSZ(cuMemcpy3DBatchAsync_v2, boxes, 4, ops, 0, kStream);

  static CUmemDecompressParams packed{};
  packed.src = handle<void*>(0x8000);
  packed.dst = handle<void*>(0x7000);
  packed.dstNumBytes = 64;
  PTSZ(cuMemBatchDecompressAsync, "copy driver 7000+40 source 8000 stream 0x77; ", &packed, 1, 0,
       nullptr, kStream);

  static CUmemLocation location{};
  static size_t first_location = 0;
  const std::string discards =
      "discard driver 7000+10 stream 0x77; discard driver 7100+20 stream 0x77; ";
  PTSZ(cuMemDiscardBatchAsync, discards, to, bytes, 2, 0, kStream);
  PTSZ(cuMemDiscardAndPrefetchBatchAsync, discards, to, bytes, 2, &location, &first_location, 1, 0,
       kStream);

  static CUstreamBatchMemOpParams writes[3] = {};
  writes[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  writes[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, 0x7000, {5}, 0, 0};
  writes[2].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  writes[2].writeValue.address = 0x7008;
  writes[2].writeValue.value64 = 0x100000006;
  const std::string operations =
      "wait driver 0+0 stream 0x77; set driver 7000+4 source 5 stream 0x77; "
      "set driver 7008+8 source 100000006 stream 0x77; ";
  const cuStreamBatchMemOp_v2_params first_operations{kStream, 3, writes, 0};
  for (const CUpti_CallbackId cbid : {462, 463})
    all.push_back(vector(cbid, first_operations, operations));
  PTSZ(cuStreamBatchMemOp_v2, operations, kStream, 3, writes, 0);
}

void add_sets(std::vector<Vector>& all) {
  PTDS(cuMemsetD8_v2, "at exit: set driver 7000+10 source ab", 0x7000, 0xab, 16);
  PTDS(cuMemsetD16_v2, "at exit: set driver 7000+20 source abcd", 0x7000, 0xabcd, 16);
  PTDS(cuMemsetD32_v2, "at exit: set driver 7000+40 source abcd", 0x7000, 0xabcd, 16);
  PTSZ(cuMemsetD8Async, "at exit: set driver 7000+10 source ab stream 0x77", 0x7000, 0xab, 16,
       kStream);
  PTSZ(cuMemsetD16Async, "at exit: set driver 7000+20 source abcd stream 0x77", 0x7000, 0xabcd, 16,
       kStream);
  PTSZ(cuMemsetD32Async, "at exit: set driver 7000+40 source abcd stream 0x77", 0x7000, 0xabcd, 16,
       kStream);
  // Four rows, 0x100 apart, of three elements.
  PTDS(cuMemsetD2D8_v2, "at exit: set driver 7000+303 source ab", 0x7000, 0x100, 0xab, 3, 4);
  PTDS(cuMemsetD2D16_v2, "at exit: set driver 7000+306 source abcd", 0x7000, 0x100, 0xabcd, 3, 4);
  PTDS(cuMemsetD2D32_v2, "at exit: set driver 7000+30c source abcd", 0x7000, 0x100, 0xabcd, 3, 4);
  PTSZ(cuMemsetD2D8Async, "at exit: set driver 7000+303 source ab stream 0x77", 0x7000, 0x100, 0xab,
       3, 4, kStream);
  PTSZ(cuMemsetD2D16Async, "at exit: set driver 7000+306 source abcd stream 0x77", 0x7000, 0x100,
       0xabcd, 3, 4, kStream);
  PTSZ(cuMemsetD2D32Async, "at exit: set driver 7000+30c source abcd stream 0x77", 0x7000, 0x100,
       0xabcd, 3, 4, kStream);
  PTSZ(cuStreamWriteValue32_v2, "at exit: set driver 7000+4 source 5 stream 0x77", kStream, 0x7000,
       5, 0);
  const cuStreamWriteValue32_v2_params word{kStream, 0x7000, 5, 0};
  const cuStreamWriteValue64_v2_params long_word{kStream, 0x7000, 5, 0};
  for (const CUpti_CallbackId cbid : {460, 461})
    all.push_back(vector(cbid, word, "at exit: set driver 7000+4 source 5 stream 0x77"));
  for (const CUpti_CallbackId cbid : {475, 476})
    all.push_back(vector(cbid, long_word, "at exit: set driver 7000+8 source 5 stream 0x77"));
  PTSZ(cuStreamWriteValue64_v2, "at exit: set driver 7000+8 source 5 stream 0x77", kStream, 0x7000,
       5, 0);
}

void add_handles(std::vector<Vector>& all) {
  auto* const functions = handle<CUfunction*>(0x10);
  auto* const kernels = handle<CUkernel*>(0x20);
  const auto module = handle<CUmodule>(1);
  const auto library = handle<CUlibrary>(2);
  ONE(cuModuleGetFunction, "function of 0x1 0x10 x1", functions, module, "name");
  ONE(cuModuleEnumerateFunctions, "function of 0x1 0x10 x5", functions, 5, module);
  ONE(cuModuleUnload, "function of 0x1 gone", module);
  ONE(cuLibraryGetModule, "module of 0x2 0x30 x1", handle<CUmodule*>(0x30), library);
  ONE(cuLibraryGetKernel, "kernel of 0x2 0x20 x1", kernels, library, "name");
  ONE(cuLibraryEnumerateKernels, "kernel of 0x2 0x20 x5", kernels, 5, library);
  ONE(cuLibraryUnload, "kernel of 0x2 gone", library);
  ONE(cuKernelGetFunction, "function of 0x3 0x10 x1", functions, handle<CUkernel>(3));

  auto* const map = handle<CUtensorMap*>(0x80);
  void* const tensor = handle<void*>(0x7000);
  cuTensorMapEncodeTiled_params tiled{};
  cuTensorMapEncodeIm2col_params im2col{};
  cuTensorMapEncodeIm2colWide_params wide{};
  tiled.tensorMap = im2col.tensorMap = wide.tensorMap = map;
  tiled.globalAddress = im2col.globalAddress = wide.globalAddress = tensor;
  all.push_back(vector(CBID(cuTensorMapEncodeTiled), tiled, "map 0x80 is 7000"));
  all.push_back(vector(CBID(cuTensorMapEncodeIm2col), im2col, "map 0x80 is 7000"));
  all.push_back(vector(CBID(cuTensorMapEncodeIm2colWide), wide, "map 0x80 is 7000"));
  ONE(cuTensorMapReplaceAddress, "map 0x80 is 7000", map, tensor);
}

void add_streams_and_contexts(std::vector<Vector>& all) {
  const cuStreamBeginCapture_v2_params begin{kStream, CU_STREAM_CAPTURE_MODE_GLOBAL};
  for (const CUpti_CallbackId cbid : {495, 496, 539, 540})
    all.push_back(vector(cbid, begin, "begin 0x77"));
  PTSZ(cuStreamBeginCaptureToGraph, "begin 0x77", kStream, nullptr, nullptr, nullptr, 0,
       CU_STREAM_CAPTURE_MODE_GLOBAL);
  PTSZ(cuStreamEndCapture, "end 0x77", kStream, nullptr);
  for (const CUpti_CallbackId cbid :
       {CBID(cuCtxCreate_v2), CBID(cuCtxCreate_v3), CBID(cuCtxCreate_v4), CBID(cuCtxSetCurrent),
        CBID(cuCtxPushCurrent_v2)})
    all.push_back(vector(cbid, 0, "context"));
  for (const CUpti_CallbackId cbid :
       {CBID(cuCtxDestroy_v2), CBID(cuDevicePrimaryCtxReset), CBID(cuDevicePrimaryCtxReset_v2),
        CBID(cuDevicePrimaryCtxRelease), CBID(cuDevicePrimaryCtxRelease_v2)})
    all.push_back(vector(cbid, 0, "context ended"));
  for (const CUpti_CallbackId cbid :
       {CBID(cuIpcGetMemHandle), CBID(cuMemExportToShareableHandle),
        CBID(cuMemPoolExportToShareableHandle), CBID(cuMemPoolExportPointer),
        CBID(cuMemGetHandleForAddressRange), CBID(cuMemPoolCreate), CBID(cuMemGetDefaultMemPool),
        CBID(cuMemGetMemPool)})
    all.push_back(vector(cbid, 0, "shared"));
}

void add_syncs(std::vector<Vector>& all) {
  static CUevent event = handle<CUevent>(0x99);
  static CUstream stream = kStream;
  ONE(cuEventCreate, "event-create event 0x99 flags 2", &event, CU_EVENT_DISABLE_TIMING);
  ONE(cuIpcOpenEventHandle, "event-create event 0x99 flags 4", &event, {});
  ONE(cuEventDestroy_v2, "at entry: event-destroy event 0x99", event);
  PTSZ(cuEventRecord, "event-record stream 0x77 event 0x99", event, kStream);
  PTSZ(cuEventRecordWithFlags, "event-record stream 0x77 event 0x99", event, kStream, 1);
  ONE(cuEventSynchronize, "event-done event 0x99", event);
  ONE(cuEventQuery, "event-done event 0x99", event);
  const cuEventElapsedTime_params elapsed{nullptr, handle<CUevent>(0x98), event};
  all.push_back(vector(123, elapsed, "event-done event 0x99"));
  ONE(cuEventElapsedTime_v2, "event-done event 0x99", nullptr, handle<CUevent>(0x98), event);
  PTSZ(cuStreamWaitEvent, "stream-wait stream 0x77 event 0x99", kStream, event, 0);
  PTSZ(cuStreamWaitValue32_v2, "stream-wait stream 0x77", kStream, 0x1000, 1, 0);
  const cuStreamWaitValue32_v2_params first_wait{kStream, 0x1000, 1, 0};
  const cuStreamWaitValue64_v2_params first_long_wait{kStream, 0x1000, 1, 0};
  for (const CUpti_CallbackId cbid : {458, 459})
    all.push_back(vector(cbid, first_wait, "stream-wait stream 0x77"));
  for (const CUpti_CallbackId cbid : {473, 474})
    all.push_back(vector(cbid, first_long_wait, "stream-wait stream 0x77"));
  PTSZ(cuStreamWaitValue64_v2, "stream-wait stream 0x77", kStream, 0x1000, 1, 0);
  PTSZ(cuWaitExternalSemaphoresAsync, "stream-wait stream 0x77", nullptr, nullptr, 0, kStream);
  PTSZ(cuLaunchHostFunc, "event-done stream 0x77", kStream, nullptr, nullptr);
  PTSZ(cuStreamAddCallback, "event-done stream 0x77", kStream, nullptr, nullptr, 0);
  ONE(cuStreamCreate, "stream-create stream 0x77 flags 1", &stream, CU_STREAM_NON_BLOCKING);
  ONE(cuStreamCreateWithPriority, "stream-create stream 0x77 flags 1", &stream, 1, -5);
  ONE(cuGreenCtxStreamCreate, "stream-create stream 0x77 flags 1", &stream, nullptr, 1, -5);
  ONE(cuStreamDestroy_v2, "at entry: stream-destroy stream 0x77", kStream);
  PTSZ(cuStreamSynchronize, "stream-done stream 0x77", kStream);
  PTSZ(cuStreamQuery, "stream-done stream 0x77", kStream);
  const auto context = handle<CUcontext>(5);
  const auto green = handle<CUgreenCtx>(6);
  ONE(cuCtxRecordEvent, "event-create event 0x99 flags 4", context, event);
  ONE(cuGreenCtxRecordEvent, "event-create event 0x99 flags 4", green, event);
  ONE(cuCtxWaitEvent, "context-done context 0x5", context, event);
  ONE(cuGreenCtxWaitEvent, "context-done", green, event);
  all.push_back(vector(CBID(cuCtxSynchronize), 0, "context-done"));
  ONE(cuCtxSynchronize_v2, "context-done context 0x5", context);
}

std::vector<Vector> vectors() {
  std::vector<Vector> all;
  add_launches(all);
  add_allocations(all);
  add_virtual_memory(all);
  add_copies(all);
  add_batches(all);
  add_sets(all);
  add_handles(all);
  add_streams_and_contexts(all);
  add_syncs(all);
  return all;
}

TEST_CASE("callback_table: every row decodes what it is for, its per-thread variant alike",
          "[callback_table]") {
  std::set<CUpti_CallbackId> tested;
  for (const Vector& vector : vectors()) {
    CAPTURE(vector.cbid);
    CHECK(tested.insert(vector.cbid).second);
    const CallbackEntry* const entry = find_driver_callback(vector.cbid);
    REQUIRE(entry != nullptr);
    CHECK(decode(*entry, vector.params.get()) == vector.expected);
  }
  for (const CallbackEntry& entry : driver_callbacks()) {
    CAPTURE(entry.cbid);
    CHECK(tested.contains(entry.cbid));
  }
}

}  // namespace
}  // namespace convtrace::cupti
