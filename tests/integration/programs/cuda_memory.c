/// Gives, takes and writes device memory in every way that the fake driver knows, and says how
/// often: "alloc 17 free 17 copy 28 launch 3".
///
/// usage: cuda_memory [context]
/// With `context`, memory is left to the context that is destroyed. A call that fails
/// (FAKECUDA_FAIL) is not counted, and all that depends on it is left out.

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fakecuda.h"

#define GRANULE ((size_t)2 << 20)

static int allocs, frees, copies, launches;

/// Counts a call that succeeded. @return whether it did.
static int counted(int* count, int by, CUresult result) {
  if (result == CUDA_SUCCESS) *count += by;
  return result == CUDA_SUCCESS;
}
#define ALLOC(call) counted(&allocs, 1, call)
#define FREE(call) counted(&frees, 1, call)
#define COPY(call) counted(&copies, 1, call)

static void run_nothing(const struct fakecuda_launch* launch) { (void)launch; }
static const unsigned kMapParams[] = {sizeof(CUtensorMap), 8};
static const struct fakecuda_kernel kKernels[] = {{"map_kernel", run_nothing, 2, kMapParams}};
static const struct fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};

static void plain(void) {
  CUdeviceptr p = 0;
  size_t pitch = 0;
  void* host = NULL;
  static char registered[4096];
  if (ALLOC(cuMemAlloc(&p, 100))) FREE(cuMemFree(p));
  if (ALLOC(cuMemAllocPitch(&p, &pitch, 100, 4, 4))) FREE(cuMemFree(p));
  if (ALLOC(cuMemAllocManaged(&p, 100, CU_MEM_ATTACH_GLOBAL))) FREE(cuMemFree(p));
  if (ALLOC(cuMemHostAlloc(&host, 100, 0))) FREE(cuMemFreeHost(host));
  if (ALLOC(cuMemAllocHost(&host, 100))) FREE(cuMemFreeHost(host));
  if (ALLOC(cuMemHostRegister(registered, sizeof registered, 0)))
    FREE(cuMemHostUnregister(registered));
}

static void pools(CUstream stream) {
  CUdeviceptr p = 0;
  CUmemoryPool pool = NULL;
  CUmemPoolPtrExportData data;
  memset(&data, 0, sizeof data);
  cuMemPoolCreate(&pool, NULL);
  if (ALLOC(cuMemAllocAsync(&p, 100, stream))) FREE(cuMemFreeAsync(p, stream));
  if (ALLOC(cuMemAllocFromPoolAsync(&p, 100, pool, stream))) FREE(cuMemFreeAsync(p, stream));
  if (ALLOC(cuMemAllocAsync(&p, 100, stream))) FREE(cuMemFree(p));
  if (ALLOC(cuMemPoolImportPointer(&p, pool, &data))) FREE(cuMemFreeAsync(p, stream));
  cuMemPoolDestroy(pool);
}

static void foreign(void) {
  CUdeviceptr p = 0;
  CUipcMemHandle handle;
  CUexternalMemory external = NULL;
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer;
  memset(&handle, 0, sizeof handle);
  memset(&buffer, 0, sizeof buffer);
  buffer.size = 4096;
  if (ALLOC(cuIpcOpenMemHandle(&p, handle, 0))) FREE(cuIpcCloseMemHandle(p));
  cuImportExternalMemory(&external, NULL);
  if (ALLOC(cuExternalMemoryGetMappedBuffer(&p, external, &buffer))) FREE(cuMemFree(p));
  cuDestroyExternalMemory(external);
}

/// Two granules of one reservation on device 1, unmapped by one call; a multicast object beside.
static void mapped(void) {
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle memory = 0, imported = 0, multicast = 0;
  CUmemAllocationProp prop;
  memset(&prop, 0, sizeof prop);
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 1;
  cuMemAddressReserve(&base, 4 * GRANULE, 0, 0, 0);
  cuMemCreate(&memory, GRANULE, &prop, 0);
  cuMemImportFromShareableHandle(&imported, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  cuMulticastCreate(&multicast, NULL);
  ALLOC(cuMemMap(base, GRANULE, 0, memory, 0));
  ALLOC(cuMemMap(base + GRANULE, GRANULE, 0, imported, 0));
  ALLOC(cuMemMap(base + 2 * GRANULE, GRANULE, 0, multicast, 0));
  cuMemRelease(memory);
  cuMemRelease(imported);
  cuMemRelease(multicast);
  if (cuMemUnmap(base, 3 * GRANULE) == CUDA_SUCCESS) {
    frees += 3;
  } else {
    allocs += 3;  // taken and given back
    frees += 6;
    cuMemUnmap(base, 3 * GRANULE);
  }
  cuMemAddressFree(base, 4 * GRANULE);
}

static void copied(CUdeviceptr to, CUdeviceptr from, CUcontext context, CUstream stream) {
  char host[256] = {0};
  CUDA_MEMCPY2D rows;
  CUDA_MEMCPY3D box;
  CUDA_MEMCPY3D_PEER peer;
  CUdeviceptr all_to[3] = {to, to + 64, to + 128}, all_from[3] = {from, from + 64, from + 128};
  size_t bytes[3] = {64, 64, 64};
  memset(&rows, 0, sizeof rows);
  memset(&box, 0, sizeof box);
  memset(&peer, 0, sizeof peer);

  COPY(cuMemcpy(to, from, 64));
  COPY(cuMemcpyAsync(to, from, 64, stream));
  COPY(cuMemcpyHtoD(to, host, 64));
  COPY(cuMemcpyHtoDAsync(to, host, 64, stream));
  COPY(cuMemcpyDtoD(to, from, 64));
  COPY(cuMemcpyDtoDAsync(to, from, 64, stream));
  cuMemcpyDtoH(host, from, 64);  // writes no device memory
  COPY(cuMemcpyPeer(to, context, from, context, 64));
  COPY(cuMemcpyPeerAsync(to, context, from, context, 64, stream));

  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = host;
  rows.srcPitch = 16;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = to;
  rows.dstPitch = 64;
  rows.WidthInBytes = 16;
  rows.Height = 4;
  COPY(cuMemcpy2D(&rows));
  COPY(cuMemcpy2DUnaligned(&rows));
  COPY(cuMemcpy2DAsync(&rows, stream));
  box.srcMemoryType = box.dstMemoryType = peer.srcMemoryType = peer.dstMemoryType =
      CU_MEMORYTYPE_DEVICE;
  box.srcDevice = peer.srcDevice = from;
  box.dstDevice = peer.dstDevice = to;
  box.srcPitch = box.dstPitch = peer.srcPitch = peer.dstPitch = 16;
  box.srcHeight = box.dstHeight = peer.srcHeight = peer.dstHeight = 2;
  box.WidthInBytes = peer.WidthInBytes = 16;
  box.Height = box.Depth = peer.Height = peer.Depth = 2;
  COPY(cuMemcpy3D(&box));
  COPY(cuMemcpy3DAsync(&box, stream));
  COPY(cuMemcpy3DPeer(&peer));
  COPY(cuMemcpy3DPeerAsync(&peer, stream));
  counted(&copies, 3, cuMemcpyBatchAsync(all_to, all_from, bytes, 3, NULL, NULL, 0, stream));
}

static void set(CUdeviceptr to, CUstream stream) {
  CUstreamBatchMemOpParams writes[2];
  memset(writes, 0, sizeof writes);
  COPY(cuMemsetD8(to, 1, 16));
  COPY(cuMemsetD16(to, 1, 16));
  COPY(cuMemsetD32(to, 1, 16));
  COPY(cuMemsetD8Async(to, 1, 16, stream));
  COPY(cuMemsetD32Async(to, 1, 16, stream));
  COPY(cuMemsetD2D8(to, 64, 1, 16, 4));
  COPY(cuMemsetD2D32Async(to, 64, 1, 4, 4, stream));
  COPY(cuStreamWriteValue32(stream, to, 7, 0));
  // As PyTorch and the CUDA runtime ask for it: the function of before 11.7.
  CUresult (*write_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = NULL;
  if (cuGetProcAddress("cuStreamWriteValue32", (void**)&write_value, 8000, 0, NULL) == CUDA_SUCCESS)
    COPY(write_value(stream, to, 7, 0));
  writes[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  writes[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  writes[1].writeValue.address = to;
  COPY(cuStreamBatchMemOp(stream, 2, writes, 0));
}

/// One launch whose tensor map describes `data`, and one call that makes two.
static void launched(CUfunction kernel, CUdeviceptr data, CUstream stream) {
  const cuuint64_t size = 16;
  const cuuint32_t one = 1;
  CUtensorMap map;
  void* params[] = {&map, &data};
  CUDA_LAUNCH_PARAMS devices[2];
  cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, (void*)(data + 64), &size, NULL,
                         &one, &one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                         CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  counted(&launches, 1, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
  memset(devices, 0, sizeof devices);
  for (int i = 0; i < 2; ++i) {
    devices[i].function = kernel;
    devices[i].gridDimX = devices[i].gridDimY = devices[i].gridDimZ = 1;
    devices[i].blockDimX = devices[i].blockDimY = devices[i].blockDimZ = 1;
    devices[i].hStream = stream;
    devices[i].kernelParams = params;
  }
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  counted(&launches, 2, cuLaunchCooperativeKernelMultiDevice(devices, 2, 0));
}

int main(int argc, char** argv) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUmodule module = NULL;
  CUfunction kernel = NULL;
  CUdeviceptr to = 0, from = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate(&context, NULL, 0, 0) != CUDA_SUCCESS ||
      cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
      cuModuleLoadData(&module, &kImage) != CUDA_SUCCESS ||
      cuModuleGetFunction(&kernel, module, "map_kernel") != CUDA_SUCCESS)
    return 1;
  plain();
  pools(stream);
  foreign();
  mapped();
  if (!ALLOC(cuMemAlloc(&to, 4096)) || !ALLOC(cuMemAlloc(&from, 4096))) return 1;
  copied(to, from, context, stream);
  set(to, stream);
  launched(kernel, to, stream);
  if (argc > 1 && strcmp(argv[1], "context") == 0) {
    frees += 2;
    cuCtxDestroy(context);
  } else {
    FREE(cuMemFree(to));
    FREE(cuMemFree(from));
  }
  printf("alloc %d free %d copy %d launch %d\n", allocs, frees, copies, launches);
  return 0;
}
