/// Many threads that launch, allocate and free at once while modules come and go and the process
/// forks; each launch is checked, and at the end it says how much it did.
///
/// usage: cuda_stress THREADS LAUNCHES
/// prints "launches N allocs N frees N children N"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakecuda/fakecuda.h"
#include "tests/integration/programs/check.h"

#define BLOCKS 8
#define ROUND 64 /* launches for each module that is loaded */
#define CHILDREN 20

static atomic_uint_fast64_t launches, allocs, frees;
static atomic_int working;
static CUcontext context;
static long launches_each;

static void run_count(const struct fakecuda_launch* launch) {
  uint64_t* data = launch->device(*(const uint64_t*)launch->params[0], sizeof(uint64_t));
  if (data != NULL) *data += *(const uint32_t*)launch->params[1];
}

static const unsigned kParams[] = {8, 4};
static const struct fakecuda_kernel kKernels[] = {{"_Z5countPmj", run_count, 2, kParams}};
static const struct fakecuda_image kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kKernels};

static CUdeviceptr zeroed_block(CUstream stream) {
  CUdeviceptr address = 0;
  check(cuMemAlloc(&address, 256), "cuMemAlloc");
  check(cuMemsetD32Async(address, 0, 64, stream), "cuMemsetD32Async");
  allocs++;
  return address;
}

static void check_and_free(CUdeviceptr address, uint64_t expected) {
  uint64_t value = 0;
  check(cuMemcpyDtoH(&value, address, sizeof value), "cuMemcpyDtoH");
  if (value != expected) {
    printf("a block holds %lu, not %lu\n", value, expected);
    exit(1);
  }
  check(cuMemFree(address), "cuMemFree");
  frees++;
}

static void work_one_round(CUstream stream, long count) {
  CUmodule module = NULL;
  CUfunction function = NULL;
  CUdeviceptr blocks[BLOCKS];
  uint64_t expected[BLOCKS] = {0};
  check(cuModuleLoadData(&module, &kImage), "cuModuleLoadData");
  check(cuModuleGetFunction(&function, module, kKernels[0].name), "cuModuleGetFunction");
  for (int i = 0; i < BLOCKS; ++i) blocks[i] = zeroed_block(stream);
  for (long i = 0; i < count; ++i) {
    const unsigned amount = (unsigned)i + 1;
    void* params[] = {&blocks[i % BLOCKS], (void*)&amount};
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), "cuLaunchKernel");
    expected[i % BLOCKS] += amount;
    launches++;
  }
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  for (int i = 0; i < BLOCKS; ++i) check_and_free(blocks[i], expected[i]);
  check(cuModuleUnload(module), "cuModuleUnload");
}

static void* work(void* unused) {
  CUstream stream = NULL;
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (long left = launches_each; left > 0; left -= ROUND)
    work_one_round(stream, left < ROUND ? left : ROUND);
  check(cuStreamDestroy(stream), "cuStreamDestroy");
  working--;
  return unused;
}

/// Children that end at once and children that become something else, while all are at work.
static int fork_children(void) {
  int children = 0;
  for (; children < CHILDREN && working > 0; ++children) {
    const pid_t child = fork();
    if (child == 0) {
      if (children % 2 == 0) _exit(0);
      execl("/bin/true", "true", (char*)NULL);
      _exit(1);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
      printf("a child ended with %d\n", status);
      exit(1);
    }
    usleep(1000);
  }
  return children;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int threads = atoi(argv[1]);
  launches_each = atol(argv[2]) / threads;
  pthread_t ids[64];
  if (threads < 1 || threads > 64) return 2;
  check(cuInit(0), "cuInit");
  check(cuCtxCreate(&context, NULL, 0, 0), "cuCtxCreate");
  working = threads;
  for (int i = 0; i < threads; ++i)
    if (pthread_create(&ids[i], NULL, work, NULL) != 0) return 1;
  const int children = fork_children();
  for (int i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
  printf("launches %lu allocs %lu frees %lu children %d\n", launches, allocs, frees, children);
  return 0;
}
