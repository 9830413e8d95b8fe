/// A program that profiles itself, as PyTorch does: launches `count` 10 times, then takes CUPTI and
/// launches it 10 times more, and prints how many launches the profiler saw.
///
/// usage: cuda_profiled HOW
///   linked     subscribes; libcupti is linked, as libtorch links it
///   looked-up  subscribes; the functions come from dlopen and dlsym, as XLA and Triton have them
///   activity   asks for kernel records, and subscribes to nothing
///   finalized  subscribes, gives the subscription back, ends CUPTI (TEARDOWN_CUPTI), launches on

#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fakecuda.h"
#include "tests/integration/programs/check.h"

#define LAUNCHES 10

static void run_count(const struct fakecuda_launch* launch) {
  float* data = launch->device(*(const uint64_t*)launch->params[0], sizeof(float));
  if (data != NULL) *data += 1;
}
static const unsigned kParams[] = {8};
static const struct fakecuda_kernel kKernels[] = {{"_Z5countPf", run_count, 1, kParams}};
static const struct fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};

static CUfunction function;
static CUdeviceptr data;

static void launch_some(void) {
  void* params[] = {&data};
  for (int i = 0; i < LAUNCHES; ++i)
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), "cuLaunchKernel");
}

static void begin(void) {
  CUcontext context = NULL;
  CUmodule module = NULL;
  check(cuInit(0), "cuInit");
  check(cuCtxCreate(&context, NULL, 0, 0), "cuCtxCreate");
  check(cuModuleLoadData(&module, &kImage), "cuModuleLoadData");
  check(cuModuleGetFunction(&function, module, "_Z5countPf"), "cuModuleGetFunction");
  check(cuMemAlloc(&data, sizeof(float)), "cuMemAlloc");
  launch_some();
}

static void cupti(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return;
  printf("%s: %d\n", what, result);
  exit(1);
}

static int seen = 0;

static void count_launch(void* unused, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                         const void* call) {
  (void)unused, (void)domain, (void)id;
  seen += ((const CUpti_CallbackData*)call)->callbackSite == CUPTI_API_EXIT;
}

typedef CUptiResult (*subscribe_fn)(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*);

static CUpti_SubscriberHandle profile(subscribe_fn subscribe) {
  CUpti_SubscriberHandle handle = NULL;
  cupti(subscribe(&handle, (CUpti_CallbackFunc)count_launch, NULL), "cuptiSubscribe");
  cupti(cuptiEnableCallback(1, handle, CUPTI_CB_DOMAIN_DRIVER_API,
                            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel),
        "cuptiEnableCallback");
  launch_some();
  return handle;
}

static void give_buffer(uint8_t** buffer, size_t* bytes, size_t* most) {
  *bytes = 4096;
  *buffer = malloc(*bytes);
  *most = 0;
}

static void take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t bytes,
                        size_t used) {
  (void)context, (void)stream, (void)bytes;
  CUpti_Activity* record = NULL;
  while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS) ++seen;
  free(buffer);
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  begin();
  if (strcmp(how, "linked") == 0) {
    profile(cuptiSubscribe);
  } else if (strcmp(how, "looked-up") == 0) {
    void* library = dlopen("libcupti.so.13", RTLD_NOW);
    profile((subscribe_fn)(uintptr_t)dlsym(library, "cuptiSubscribe"));
  } else if (strcmp(how, "activity") == 0) {
    cupti(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "RegisterCallbacks");
    cupti(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
    launch_some();
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    cupti(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    cupti(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityDisable");
  } else if (strcmp(how, "finalized") == 0) {
    cupti(cuptiUnsubscribe(profile(cuptiSubscribe)), "cuptiUnsubscribe");
    cupti(cuptiFinalize(), "cuptiFinalize");
    launch_some();
  } else {
    return 2;
  }
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  printf("the profiler saw %d launches\n", seen);
  return 0;
}
