/// A program that captures a graph, launches it, gives a node new parameters and launches it again,
/// and checks its own results.
///
/// usage: cuda_graphs linked|dlsym|proc-address [pause in ms before the first launch]
/// How it gets hold of the driver's functions: by linking libcuda, by dlsym, or from
/// cuGetProcAddress. The graph holds two kernels, raise (+1) and double (*2). 2 launches are
/// captured, in the modules `up` and `down`, and 5 replays follow, in the module `whole`: 3, and 2 in
/// which `double` works on another buffer.

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interposer/abi/observer_abi.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/integration/programs/check.h"
#include "tests/integration/programs/prepared.h"

#define COUNT 16u
#define BYTES (COUNT * sizeof(float))

static float* floats(const struct fakecuda_launch* launch) {
  return launch->device(*(const uint64_t*)launch->params[0], BYTES);
}
static void run_raise(const struct fakecuda_launch* launch) {
  float* data = floats(launch);
  for (unsigned i = 0; data != NULL && i < COUNT; ++i) data[i] += 1;
}
static void run_double(const struct fakecuda_launch* launch) {
  float* data = floats(launch);
  for (unsigned i = 0; data != NULL && i < COUNT; ++i) data[i] *= 2;
}

static const unsigned kParams[] = {8};
static const struct fakecuda_kernel kKernels[] = {{"_Z5raisePf", run_raise, 1, kParams},
                                                  {"_Z6doublePf", run_double, 1, kParams}};
static const struct fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 2, kKernels};

static __typeof__(&cuLaunchKernel) launch_kernel = &cuLaunchKernel;
static __typeof__(&cuGraphLaunch) graph_launch = &cuGraphLaunch;
static __typeof__(&cuGraphInstantiateWithFlags) instantiate = &cuGraphInstantiateWithFlags;
static __typeof__(&cuGraphExecKernelNodeSetParams) set_params = &cuGraphExecKernelNodeSetParams;

static void find_functions(const char* how) {
  typedef CUresult (*get_fn)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (strcmp(how, "dlsym") == 0) {
    *(void**)&launch_kernel = dlsym(library, "cuLaunchKernel");
    *(void**)&graph_launch = dlsym(library, "cuGraphLaunch");
    *(void**)&instantiate = dlsym(library, "cuGraphInstantiateWithFlags");
    *(void**)&set_params = dlsym(library, "cuGraphExecKernelNodeSetParams_v2");
  } else if (strcmp(how, "proc-address") == 0) {
    get_fn get = NULL;
    *(void**)&get = dlsym(library, "cuGetProcAddress_v2");
    check(get("cuLaunchKernel", (void**)&launch_kernel, 13000, 0, NULL), "cuGetProcAddress");
    check(get("cuGraphLaunch", (void**)&graph_launch, 13000, 0, NULL), "cuGetProcAddress");
    check(get("cuGraphInstantiateWithFlags", (void**)&instantiate, 13000, 0, NULL),
          "cuGetProcAddress");
    check(get("cuGraphExecKernelNodeSetParams", (void**)&set_params, 13000, 0, NULL),
          "cuGetProcAddress");
  }
}

/// No stream waits for the other: `zeros` writes on the legacy one, the graph runs beside it.
static void expect(CUdeviceptr address, float value) {
  float host[COUNT];
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  check(cuMemcpyDtoH(host, address, BYTES), "cuMemcpyDtoH");
  for (unsigned i = 0; i < COUNT; ++i) {
    if (host[i] == value) continue;
    printf("element %u is %g, not %g\n", i, host[i], value);
    exit(1);
  }
}

static CUdeviceptr zeros(void) {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, BYTES), "cuMemAlloc");
  check(cuMemsetD32(address, 0, COUNT), "cuMemsetD32");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  return address;
}

/// Says as an observer does that a module runs now. Without a trace nobody listens.
static void enter(const char* module) {
  void* engine = dlopen("libconvtrace-core.so", RTLD_NOW | RTLD_NOLOAD);
  if (engine == NULL) return;
  __typeof__(&convtrace_intern) intern;
  __typeof__(&convtrace_scope_slot) slot;
  *(void**)&intern = dlsym(engine, "convtrace_intern");
  *(void**)&slot = dlsym(engine, "convtrace_scope_slot");
  slot()->scope = intern(module, (uint32_t)strlen(module));
}

static CUgraph capture(CUstream stream, CUfunction raise, CUfunction twice, CUdeviceptr data) {
  CUgraph graph = NULL;
  void* params[] = {&data};
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  enter("up");
  check(launch_kernel(raise, 1, 1, 1, 16, 1, 1, 0, stream, params, NULL), "launch");
  enter("down");
  check(launch_kernel(twice, 1, 1, 1, 16, 1, 1, 0, stream, params, NULL), "launch");
  check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  enter("whole");
  return graph;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  find_functions(argv[1]);
  CUcontext context = NULL;
  CUmodule module = NULL;
  CUfunction raise = NULL, twice = NULL;
  CUstream stream = NULL;
  check(cuInit(0), "cuInit");
  check(cuCtxCreate(&context, NULL, 0, 0), "cuCtxCreate");
  check(cuModuleLoadData(&module, &kImage), "cuModuleLoadData");
  check(cuModuleGetFunction(&raise, module, "_Z5raisePf"), "cuModuleGetFunction");
  check(cuModuleGetFunction(&twice, module, "_Z6doublePf"), "cuModuleGetFunction");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  CUdeviceptr data = zeros();
  CUdeviceptr other = zeros();
  if (argc > 2) wait_until_prepared(1, atol(argv[2]));
  CUgraph graph = capture(stream, raise, twice, data);
  CUgraphExec exec = NULL;
  CUgraphNode nodes[8];
  size_t count = 8;
  check(cuGraphGetNodes(graph, nodes, &count), "cuGraphGetNodes");
  check(instantiate(&exec, graph, 0), "cuGraphInstantiate");
  for (int i = 0; i < 3; ++i) check(graph_launch(exec, stream), "cuGraphLaunch");
  expect(data, 14); /* ((1) * 2 + 1) * 2 ... */

  CUDA_KERNEL_NODE_PARAMS params = {.func = twice,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 16,
                                    .blockDimY = 1,
                                    .blockDimZ = 1};
  params.kernelParams = (void*[]){&other};
  check(set_params(exec, nodes[count - 1], &params), "cuGraphExecKernelNodeSetParams");
  check(cuGraphDestroy(graph), "cuGraphDestroy");
  for (int i = 0; i < 2; ++i) check(graph_launch(exec, stream), "cuGraphLaunch");
  expect(data, 16);
  expect(other, 0);
  check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
  printf("all right, %zu nodes\n", count);
  return 0;
}
