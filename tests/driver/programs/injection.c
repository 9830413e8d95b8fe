/* A library for CUDA_INJECTION64_PATH: says on stdout that it was called, and whether on the thread
 * that called cuInit, which is the main one. Answers CONVTRACE_TEST_INJECTION; where that is
 * "nested" it calls cuInit itself, and answers 1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*init_fn)(unsigned);

int InitializeInjection(void) {
  const char* answer = getenv("CONVTRACE_TEST_INJECTION");
  printf("called %s\n", gettid() == getpid() ? "on the main thread" : "elsewhere");
  fflush(stdout);
  if (strcmp(answer, "nested") != 0) return atoi(answer);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const init_fn init = (init_fn)(uintptr_t)dlsym(driver, "cuInit");
  printf("cuInit inside: %d\n", init(0));
  fflush(stdout);
  return 1;
}
