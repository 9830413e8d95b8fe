/// What programs do with memory that CONVTRACE_POISON and CONVTRACE_QUARANTINE may fill and hold:
/// one scenario a run, which prints what the program sees of it.
///
/// usage: cuda_keep SCENARIO

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/fakecuda/fakecuda.h"
#include "tests/integration/programs/check.h"

#define BLOCK 4096u

/// Copies the eight bytes at the first address to the second.
static void run_look(const struct fakecuda_launch* launch) {
  const void* from = launch->device(*(const uint64_t*)launch->params[0], 8);
  void* to = launch->device(*(const uint64_t*)launch->params[1], 8);
  if (from != NULL && to != NULL) memcpy(to, from, 8);
}
static const unsigned kTwoPointers[] = {8, 8};
static const struct fakecuda_kernel kKernels[] = {{"look", run_look, 2, kTwoPointers}};
static const struct fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};

static CUcontext context;
static CUfunction look_function;
static CUstream stream;
static CUdeviceptr result;

static CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, bytes), "cuMemAlloc");
  return address;
}

static void release(CUdeviceptr address) { check(cuMemFree(address), "cuMemFree"); }

/// Behind all that this program did before.
static uint64_t look(CUdeviceptr address) {
  uint64_t seen = 0;
  void* params[] = {&address, &result};
  check(cuStreamSynchronize(NULL), "cuStreamSynchronize");
  check(cuLaunchKernel(look_function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), "look");
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  check(cuMemcpyDtoH(&seen, result, sizeof seen), "cuMemcpyDtoH");
  return seen;
}

static void say(const char* what, CUdeviceptr first, CUdeviceptr second) {
  printf("%s %s\n", what, first == second ? "same" : "other");
}

/// A pointer that is used after its memory was freed and, without a quarantine, given out again.
static void dangling(void) {
  const CUdeviceptr gone = allocate(BLOCK);
  release(gone);
  const CUdeviceptr next = allocate(BLOCK);
  say("address", gone, next);
  check(cuMemsetD8(next, 0, BLOCK), "cuMemsetD8");
  printf("seen %llx\n", (unsigned long long)look(gone));
}

static void fresh(void) {
  const CUdeviceptr plain = allocate(BLOCK);
  printf("plain %llx\n", (unsigned long long)look(plain));
  CUdeviceptr ordered = 0;
  check(cuMemAllocAsync(&ordered, BLOCK, stream), "cuMemAllocAsync");
  printf("ordered %llx\n", (unsigned long long)look(ordered));
  check(cuMemFreeAsync(ordered, stream), "cuMemFreeAsync");
  CUdeviceptr managed = 0;
  check(cuMemAllocManaged(&managed, BLOCK, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
  printf("managed %llx\n", *(unsigned long long*)(uintptr_t)managed);
  release(managed);
  release(plain);
}

/// A second free of the same memory is an error, held or not.
static void twice(void) {
  const CUdeviceptr memory = allocate(BLOCK);
  release(memory);
  printf("again %d\n", cuMemFree(memory));
}

/// All of the device but a little (FAKECUDA_MEMORY), while a block is held.
static void big(void) {
  size_t available = 0, total = 0;
  check(cuMemGetInfo(&available, &total), "cuMemGetInfo");
  const CUdeviceptr gone = allocate(total / 32);
  release(gone);
  const CUdeviceptr all = allocate(available - total / 64);
  say("address", gone, all);
}

/// What programs decide by: how much is free.
static void free_bytes(void) {
  size_t before = 0, after = 0, total = 0;
  check(cuMemGetInfo(&before, &total), "cuMemGetInfo");
  release(allocate(BLOCK));
  check(cuMemGetInfo(&after, &total), "cuMemGetInfo");
  printf("free %s\n", before == after ? "same" : "less");
}

/// The device fills up: what is held is not worth the last of it.
static void little(void) {
  size_t available = 0, total = 0;
  check(cuMemGetInfo(&available, &total), "cuMemGetInfo");
  const CUdeviceptr gone = allocate(BLOCK);
  (void)allocate(BLOCK);
  release(gone);
  (void)allocate(available - total / 16);
  say("address", gone, allocate(BLOCK));
}

/// Another process has a handle of it.
static void shared(void) {
  CUipcMemHandle handle;
  const CUdeviceptr memory = allocate(BLOCK);
  check(cuIpcGetMemHandle(&handle, memory), "cuIpcGetMemHandle");
  release(memory);
  say("address", memory, allocate(BLOCK));
}

static void capture(void) {
  CUgraph graph = NULL;
  const CUdeviceptr held = allocate(BLOCK), memory = allocate(BLOCK);
  release(held);
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  check(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
  say("held before", held, allocate(BLOCK));
  release(memory);
  say("freed within", memory, allocate(BLOCK));
  check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  release(memory);
  say("freed behind", memory, allocate(BLOCK));
}

/// What is held goes with its context, and nothing that comes to its address later is touched.
static void contexts(void) {
  const CUdeviceptr gone = allocate(BLOCK);
  release(gone);
  check(cuCtxDestroy(context), "cuCtxDestroy");
  check(cuCtxCreate(&context, NULL, 0, 0), "cuCtxCreate");
  CUmodule module = NULL;
  check(cuModuleLoadData(&module, &kImage), "cuModuleLoadData");
  check(cuModuleGetFunction(&look_function, module, "look"), "cuModuleGetFunction");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const CUdeviceptr next = allocate(BLOCK);
  result = allocate(8);
  say("address", gone, next);
  check(cuMemsetD8(next, 7, BLOCK), "cuMemsetD8");
  for (int i = 0; i < 100; ++i) release(allocate(BLOCK));
  printf("seen %llx\n", (unsigned long long)look(next));
}

/// Far more than may be held.
static void churn(void) {
  for (int i = 0; i < 20000; ++i) release(allocate(BLOCK + 512 * (unsigned)(i % 7)));
  size_t available = 0, total = 0;
  check(cuMemGetInfo(&available, &total), "cuMemGetInfo");
  printf("in use %zu\n", total - available);
}

static const struct {
  const char* name;
  void (*run)(void);
} kScenarios[] = {
    {"dangling", dangling}, {"fresh", fresh},   {"twice", twice},   {"big", big},
    {"free", free_bytes},   {"little", little}, {"shared", shared}, {"capture", capture},
    {"contexts", contexts}, {"churn", churn},
};

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  CUmodule module = NULL;
  check(cuInit(0), "cuInit");
  check(cuCtxCreate(&context, NULL, 0, 0), "cuCtxCreate");
  check(cuModuleLoadData(&module, &kImage), "cuModuleLoadData");
  check(cuModuleGetFunction(&look_function, module, "look"), "cuModuleGetFunction");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  result = allocate(8);
  for (size_t i = 0; i < sizeof kScenarios / sizeof kScenarios[0]; ++i) {
    if (strcmp(argv[1], kScenarios[i].name) != 0) continue;
    kScenarios[i].run();
    return 0;
  }
  return 2;
}
