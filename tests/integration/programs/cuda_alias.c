/// What programs do right and wrong with device memory: one scenario a run. Kernels touch nothing,
/// so that a wrong pointer has no other effect than to be seen.
///
/// usage: cuda_alias SCENARIO | random SEED
/// `random` prints a line for each finding that is to come, in order: kind, slot, address.

#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fakecuda.h"
#include "tests/integration/programs/check.h"

#define BLOCK 4096u
#define BLOCKS 16u

struct words {
  uint64_t pointer, size;
};

static void run_nothing(const struct fakecuda_launch* launch) { (void)launch; }

static const unsigned kTwoPointers[] = {8, 8};
static const unsigned kStructure[] = {sizeof(struct words)};
static const struct fakecuda_kernel kKernels[] = {
    {"touch", run_nothing, 2, kTwoPointers},
    {"touch_list", run_nothing, 1, kStructure},
};
static const struct fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 2, kKernels};

/// The same kernels for whatever driver is there: tests/gpu links them in as machine code.
static const void* image(void) {
#ifdef WITH_GPU_IMAGE
  extern const unsigned char gpu_check_fatbin[];
  char name[64] = "";
  check(cuDeviceGetName(name, sizeof name, 0), "cuDeviceGetName");
  if (strncmp(name, "Fake device", 11) != 0) return gpu_check_fatbin;
#endif
  return &kImage;
}

static CUfunction touch_function, list_function;
static CUstream a_stream, b_stream;
static CUevent event;
static CUdeviceptr segment;

static void touch2(CUdeviceptr first, CUdeviceptr second, CUstream stream) {
  void* params[] = {&first, &second};
  check(cuLaunchKernel(touch_function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), "touch");
}

static void touch(CUdeviceptr address, CUstream stream) { touch2(address, 0, stream); }

/// The framework's report, as PyTorch makes it; without a preload nobody listens.
static void report(CUdeviceptr address, int64_t bytes) {
  typedef void (*report_fn)(void*, int64_t, size_t, size_t, uint16_t);
  static report_fn to_profiler;
  const uint16_t first_cuda_device = 0x0001;
  if (to_profiler == NULL)
    *(void**)&to_profiler =
        dlsym(RTLD_DEFAULT, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  if (to_profiler != NULL) to_profiler((void*)(uintptr_t)address, bytes, 0, 0, first_cuda_device);
}

static CUdeviceptr new_block(unsigned index) {
  const CUdeviceptr address = segment + index * BLOCK;
  report(address, BLOCK);
  return address;
}

static void free_block(CUdeviceptr address) { report(address, -(int64_t)BLOCK); }

static CUdeviceptr allocate(void) {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, BLOCK), "cuMemAlloc");
  return address;
}

/* ---- wrong ---- */

static void dangling(void) {
  const CUdeviceptr memory = allocate();
  touch(memory, NULL);
  check(cuMemFree(memory), "cuMemFree");
  touch(memory, NULL);
}

static void dangling_interior(void) {
  const CUdeviceptr block = new_block(3);
  free_block(block);
  touch(block + 512, NULL);
}

static void dangling_at_step_50(void) {
  for (int step = 0; step <= 50; ++step) {
    const CUdeviceptr block = new_block((unsigned)step % 4);
    if (step == 50) free_block(block);
    touch(block, NULL);
    if (step != 50) free_block(block);
  }
}

static void free_async_before_launch(void) {
  CUdeviceptr memory = 0;
  check(cuMemAllocAsync(&memory, BLOCK, a_stream), "cuMemAllocAsync");
  check(cuMemFreeAsync(memory, a_stream), "cuMemFreeAsync");
  touch(memory, a_stream);
}

static void begin_capture(void) {
  check(cuStreamBeginCapture(a_stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
}

static CUgraphExec end_capture(void) {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  check(cuStreamEndCapture(a_stream, &graph), "cuStreamEndCapture");
  check(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
  return exec;
}

/// A workspace that grows after a graph was captured: the graph keeps the old address.
static void workspace_moves_after_capture(void) {
  const CUdeviceptr workspace = new_block(0);
  begin_capture();
  touch(workspace, a_stream);
  const CUgraphExec exec = end_capture();
  check(cuGraphLaunch(exec, a_stream), "cuGraphLaunch");
  free_block(workspace);
  (void)new_block(5);
  check(cuGraphLaunch(exec, a_stream), "cuGraphLaunch");
}

/// A block of stream a that stream b uses last.
static void use_on_both_and_free(void) {
  const CUdeviceptr block = new_block(0);
  touch(block, a_stream);
  check(cuEventRecord(event, a_stream), "cuEventRecord");
  check(cuStreamWaitEvent(b_stream, event, 0), "cuStreamWaitEvent");
  touch(block, b_stream);
  free_block(block);
}

static void missing_record_stream(void) {
  use_on_both_and_free();
  touch(new_block(0), a_stream);
}

/* ---- right ---- */

static void record_stream(void) {
  use_on_both_and_free();
  check(cuEventRecord(event, b_stream), "cuEventRecord");
  CUresult result;
  do result = cuEventQuery(event);
  while (result == CUDA_ERROR_NOT_READY);
  check(result, "cuEventQuery");
  touch(new_block(0), a_stream);
}

static void wait_before_reuse(void) {
  const CUdeviceptr block = new_block(0);
  touch(block, b_stream);
  free_block(block);
  check(cuEventRecord(event, b_stream), "cuEventRecord");
  check(cuStreamWaitEvent(a_stream, event, 0), "cuStreamWaitEvent");
  touch(new_block(0), a_stream);
}

static void graph_pool(void) {
  begin_capture();
  for (unsigned i = 0; i < 4; ++i) {
    const CUdeviceptr block = new_block(i % 2);
    touch(block, a_stream);
    free_block(block);
  }
  const CUgraphExec exec = end_capture();
  for (int i = 0; i < 3; ++i) check(cuGraphLaunch(exec, a_stream), "cuGraphLaunch");
}

/// Kernels for lists of tensors take a structure, whose unused entries are old.
static void stale_words(void) {
  const CUdeviceptr block = new_block(0);
  free_block(block);
  struct words words = {block, 1};
  void* params[] = {&words};
  check(cuLaunchKernel(list_function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), "touch_list");
}

static void end_pointer(void) {
  const CUdeviceptr block = new_block(0);
  free_block(new_block(1));
  touch2(block, block + BLOCK, NULL);
}

static void churn(void) {
  for (unsigned i = 0; i < 100000; ++i) {
    const CUdeviceptr block = new_block(i % BLOCKS);
    if (i % 16 == 0) touch(block, NULL);
    free_block(block);
  }
}

/* ---- random ---- */

static uint64_t state;
static unsigned below(unsigned limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(state >> 33) % limit;
}

/// A bug that comes again is said four times, then at each doubling.
static void expect(const char* kind, unsigned* count, CUdeviceptr address) {
  ++*count;
  if (*count <= 4 || (*count & (*count - 1)) == 0)
    printf("%s arg:0 %llu\n", kind, (unsigned long long)address);
}

/// Blocks on two streams that only the host orders: what comes before what is then plain to see.
static void random_history(uint64_t seed) {
  enum { kNever, kLive, kFreed };
  struct {
    int life;
    int used_on;  ///< stream of the last use that the host has not waited for, or -1
    int inherited;
  } blocks[BLOCKS];
  unsigned dangling_count = 0, reuse_count = 0;
  state = seed;
  for (unsigned i = 0; i < BLOCKS; ++i) {
    blocks[i].life = kNever;
    blocks[i].used_on = -1;
    blocks[i].inherited = 0;
  }
  const CUstream streams[] = {a_stream, b_stream};
  for (int i = 0; i < 600; ++i) {
    const unsigned at = below(BLOCKS), stream = below(2);
    const CUdeviceptr address = segment + at * BLOCK;
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        if (blocks[at].life == kLive) {
          free_block(address);
          blocks[at].life = kFreed;
        } else {
          (void)new_block(at);
          blocks[at].inherited = blocks[at].life == kFreed;
          blocks[at].life = kLive;
        }
        break;
      case 3:
        check(cuStreamSynchronize(streams[stream]), "cuStreamSynchronize");
        for (unsigned j = 0; j < BLOCKS; ++j)
          if (blocks[j].used_on == (int)stream) blocks[j].used_on = -1;
        break;
      default:
        if (blocks[at].life == kFreed && below(10) != 0) break;  // most programs are mostly right
        // A block has one stream at a time: others would have to be told apart here.
        if (blocks[at].life == kLive && !blocks[at].inherited &&
            blocks[at].used_on == 1 - (int)stream)
          break;
        touch(address + 16 * below(4), streams[stream]);
        if (blocks[at].life == kFreed) {
          expect("use-after-free", &dangling_count, address);
        } else if (blocks[at].life == kLive) {
          if (blocks[at].inherited && blocks[at].used_on == 1 - (int)stream)
            expect("cross-stream-reuse", &reuse_count, address);
          blocks[at].inherited = 0;
          blocks[at].used_on = (int)stream;
        }
    }
  }
}

static const struct {
  const char* name;
  void (*run)(void);
} kScenarios[] = {
    {"dangling", dangling},
    {"dangling-interior", dangling_interior},
    {"dangling-at-step-50", dangling_at_step_50},
    {"free-async-before-launch", free_async_before_launch},
    {"workspace-moves-after-capture", workspace_moves_after_capture},
    {"missing-record-stream", missing_record_stream},
    {"record-stream", record_stream},
    {"wait-before-reuse", wait_before_reuse},
    {"graph-pool", graph_pool},
    {"stale-words", stale_words},
    {"end-pointer", end_pointer},
    {"churn", churn},
};

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  CUcontext context = NULL;
  CUmodule module = NULL;
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuModuleLoadData(&module, image()), "cuModuleLoadData");
  check(cuModuleGetFunction(&touch_function, module, "touch"), "cuModuleGetFunction");
  check(cuModuleGetFunction(&list_function, module, "touch_list"), "cuModuleGetFunction");
  check(cuStreamCreate(&a_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(cuStreamCreate(&b_stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(cuEventCreate(&event, 0), "cuEventCreate");
  check(cuMemAlloc(&segment, BLOCKS * BLOCK), "cuMemAlloc");
  if (strcmp(argv[1], "random") == 0 && argc > 2) {
    random_history(strtoull(argv[2], NULL, 0));
    return 0;
  }
  for (size_t i = 0; i < sizeof kScenarios / sizeof kScenarios[0]; ++i) {
    if (strcmp(argv[1], kScenarios[i].name) != 0) continue;
    kScenarios[i].run();
    return 0;
  }
  return 2;
}
