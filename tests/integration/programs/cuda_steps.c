/// A small program for the CUDA driver that checks its own results, as users write them.
///
/// usage: cuda_steps linked|dlsym|proc-address [pause in ms before the first step [primary]]
/// How it gets hold of the launch function: by linking libcuda, by dlsym, or from cuGetProcAddress.
/// primary: the device's primary context, as the CUDA runtime uses it.
/// Makes 4 allocations, 4 frees and 13 launches: iota 1, fill 2, add 5, square 5.

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fakecuda.h"
#include "tests/integration/programs/check.h"
#include "tests/integration/programs/prepared.h"

#define COUNT 1024u
#define BYTES (COUNT * sizeof(float))
#define STEPS 5

static float* floats(const struct fakecuda_launch* launch, unsigned param, unsigned count) {
  return launch->device(*(const uint64_t*)launch->params[param], count * sizeof(float));
}

static void run_iota(const struct fakecuda_launch* launch) {
  const unsigned count = *(const unsigned*)launch->params[1];
  float* out = floats(launch, 0, count);
  for (unsigned i = 0; out != NULL && i < count; ++i) out[i] = (float)i;
}

static void run_fill(const struct fakecuda_launch* launch) {
  const float value = *(const float*)launch->params[1];
  const unsigned count = *(const unsigned*)launch->params[2];
  float* out = floats(launch, 0, count);
  for (unsigned i = 0; out != NULL && i < count; ++i) out[i] = value;
}

static void run_add(const struct fakecuda_launch* launch) {
  const unsigned count = *(const unsigned*)launch->params[3];
  const float* a = floats(launch, 0, count);
  const float* b = floats(launch, 1, count);
  float* out = floats(launch, 2, count);
  for (unsigned i = 0; a != NULL && b != NULL && out != NULL && i < count; ++i)
    out[i] = a[i] + b[i];
}

static void run_square(const struct fakecuda_launch* launch) {
  const unsigned count = *(const unsigned*)launch->params[1];
  float* data = floats(launch, 0, count);
  for (unsigned i = 0; data != NULL && i < count; ++i) data[i] *= data[i];
}

static const unsigned kIotaParams[] = {8, 4};
static const unsigned kFillParams[] = {8, 4, 4};
static const unsigned kAddParams[] = {8, 8, 8, 4};
static const struct fakecuda_kernel kKernels[] = {
    {"_Z4iotaPfj", run_iota, 2, kIotaParams},
    {"_Z4fillPffj", run_fill, 3, kFillParams},
    {"_Z3addPKfS0_Pfj", run_add, 4, kAddParams},
    {"_Z6squarePfj", run_square, 2, kIotaParams},
};
static const struct fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 4, kKernels};

typedef CUresult (*launch_fn)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**);
typedef CUresult (*proc_address_fn)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);
static launch_fn launch_kernel;

/// The runtime's way: dlsym for cuGetProcAddress_v2, which then gives everything, itself included.
static void* by_proc_address(void* library, const char* name) {
  void* found = NULL;
  proc_address_fn first = NULL;
  *(void**)&first = dlsym(library, "cuGetProcAddress_v2");
  proc_address_fn second = NULL;
  check(first("cuGetProcAddress", (void**)&second, 12000, 0, NULL), "cuGetProcAddress");
  check(second(name, &found, 12000, 0, NULL), "cuGetProcAddress");
  return found;
}

static void find_launch(const char* how) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (strcmp(how, "linked") == 0) {
    launch_kernel = cuLaunchKernel;
  } else if (strcmp(how, "dlsym") == 0) {
    *(void**)&launch_kernel = dlsym(library, "cuLaunchKernel");
  } else {
    *(void**)&launch_kernel = by_proc_address(library, "cuLaunchKernel");
  }
}

static CUmodule module;

static void launch(const char* name, void** params) {
  CUfunction function = NULL;
  check(cuModuleGetFunction(&function, module, name), "cuModuleGetFunction");
  check(launch_kernel(function, 4, 1, 1, 256, 1, 1, 0, NULL, params, NULL), name);
}

static void fill(CUdeviceptr out, float value) {
  unsigned count = COUNT;
  launch("_Z4fillPffj", (void*[]){&out, &value, &count});
}

static CUdeviceptr allocate(void) {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, BYTES), "cuMemAlloc");
  return address;
}

static void run_step(CUdeviceptr a, CUdeviceptr b, CUdeviceptr out) {
  unsigned count = COUNT;
  launch("_Z3addPKfS0_Pfj", (void*[]){&a, &b, &out, &count});
  launch("_Z6squarePfj", (void*[]){&out, &count});
}

static void check_squares(CUdeviceptr address) {
  static float host[COUNT];
  check(cuMemcpyDtoH(host, address, BYTES), "cuMemcpyDtoH");
  for (unsigned i = 0; i < COUNT; ++i) {
    const float expected = (float)(i + 2) * (float)(i + 2);
    if (host[i] != expected) {
      printf("element %u is %g, not %g\n", i, host[i], expected);
      exit(1);
    }
  }
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  find_launch(argv[1]);
  CUcontext context = NULL;
  check(cuInit(0), "cuInit");
  if (argc > 3) {
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  } else {
    check(cuCtxCreate(&context, NULL, 0, 0), "cuCtxCreate");
  }
  check(cuModuleLoadData(&module, &kImage), "cuModuleLoadData");
  const CUdeviceptr a = allocate();
  const CUdeviceptr b = allocate();
  const CUdeviceptr c = allocate();
  if (argc > 2) wait_until_prepared(1, atol(argv[2]));
  unsigned count = COUNT;
  launch("_Z4iotaPfj", (void*[]){(void*)&a, &count});
  fill(b, 2);
  for (int step = 0; step < STEPS; ++step) run_step(a, b, c);
  check_squares(c);
  check(cuMemFree(b), "cuMemFree");
  const CUdeviceptr d = allocate();  // takes the place of b
  fill(d, 3);
  check(cuMemFree(a), "cuMemFree");
  check(cuMemFree(c), "cuMemFree");
  check(cuMemFree(d), "cuMemFree");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  printf("all right\n");
  return 0;
}
