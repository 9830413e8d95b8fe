/* A library for CUDA_INJECTION64_PATH: says on stdout that it was called, and whether on the thread
 * that called cuInit, which is the main one. Answers CONVTRACE_TEST_INJECTION. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int InitializeInjection(void) {
  printf("called %s\n", gettid() == getpid() ? "on the main thread" : "elsewhere");
  fflush(stdout);
  return atoi(getenv("CONVTRACE_TEST_INJECTION"));
}
