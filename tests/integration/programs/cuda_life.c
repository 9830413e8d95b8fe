/// The lives a process can have around the driver: how it ends, and what it makes of itself.
///
/// usage: cuda_life SCENARIO; each launches `count` 10 times before the end its name tells, and
/// prints "all right" where it gets that far.

#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void launch_all(int device) {
  CUcontext context = NULL;
  CUmodule module = NULL;
  CUfunction function = NULL;
  CUdeviceptr data = 0;
  check(cuInit(0), "cuInit");
  check(cuCtxCreate(&context, NULL, 0, device), "cuCtxCreate");
  check(cuModuleLoadData(&module, &kImage), "cuModuleLoadData");
  check(cuModuleGetFunction(&function, module, "_Z5countPf"), "cuModuleGetFunction");
  check(cuMemAlloc(&data, sizeof(float)), "cuMemAlloc");
  check(cuMemsetD32(data, 0, 1), "cuMemsetD32");
  void* params[] = {&data};
  for (int i = 0; i < LAUNCHES; ++i)
    check(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), "cuLaunchKernel");
  float value = 0;
  check(cuMemcpyDtoH(&value, data, sizeof value), "cuMemcpyDtoH");
  if (value != LAUNCHES) exit(1);
}

static int all_right(void) {
  puts("all right");
  fflush(stdout);
  return 0;
}

/// Until what was launched has reached the file: chunks close after a second.
static void let_it_be_written(void) { usleep(1500000); }

static void wait_for(pid_t child) {
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    printf("the child ended with %d\n", status);
    exit(1);
  }
}

static int end_by_return(void) {
  launch_all(0);
  return all_right();
}
static int end_by_underscore_exit(void) {
  launch_all(0);
  let_it_be_written();
  all_right();
  _exit(0);
}
static int end_by_quick_exit(void) {
  launch_all(0);
  all_right();
  quick_exit(0);
}
static int end_by_signal(void) {
  launch_all(0);
  let_it_be_written();
  all_right();
  raise(SIGTERM);
  return 1;
}

static int fork_before(void) {
  const pid_t child = fork();
  launch_all(0);
  if (child == 0) exit(0);
  wait_for(child);
  return all_right();
}

/// The child cannot use CUDA, and its exit handlers must not touch the parent's trace.
static int fork_after(void) {
  launch_all(0);
  const pid_t child = fork();
  if (child == 0) exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  wait_for(child);
  launch_all(0);
  return all_right();
}

static int vfork_and_exec(void) {
  launch_all(0);
  const pid_t child = vfork();
  if (child == 0) {
    execl("/bin/true", "true", (char*)NULL);
    _exit(1);
  }
  wait_for(child);
  return all_right();
}

/// No fork handler runs in such a child.
static int raw_clone(void) {
  launch_all(0);
  const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
  if (child == 0) exit(0);
  wait_for(child);
  launch_all(0);
  return all_right();
}

static int exec_self(void) {
  launch_all(0);
  let_it_be_written();
  execl("/proc/self/exe", "cuda_life", "return", (char*)NULL);
  return 1;
}

static void* work(void* device) {
  launch_all(*(const int*)device);
  return NULL;
}

/// Two devices, two contexts on each, each of its own thread.
static int contexts(void) {
  static const int devices[] = {0, 1, 0, 1};
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i)
    if (pthread_create(&threads[i], NULL, work, (void*)&devices[i]) != 0) return 1;
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  return all_right();
}

/// Many launches, for what happens in the middle.
static int many(void) {
  for (int i = 0; i < 20; ++i) launch_all(0);
  return all_right();
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    int (*run)(void);
  } scenarios[] = {{"return", end_by_return},
                   {"_exit", end_by_underscore_exit},
                   {"quick_exit", end_by_quick_exit},
                   {"signal", end_by_signal},
                   {"fork-before", fork_before},
                   {"fork-after", fork_after},
                   {"vfork", vfork_and_exec},
                   {"clone", raw_clone},
                   {"exec", exec_self},
                   {"contexts", contexts},
                   {"many", many}};
  for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; ++i)
    if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) return scenarios[i].run();
  return 2;
}
