/// @file check.h
/// How these programs end where a call of the driver fails.
#ifndef CONVTRACE_TESTS_INTEGRATION_PROGRAMS_CHECK_H
#define CONVTRACE_TESTS_INTEGRATION_PROGRAMS_CHECK_H

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

/// Ends the program, with a line on stdout, unless `result` is success.
static inline void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = NULL;
  cuGetErrorName(result, &name);
  printf("%s failed: %s\n", what, name == NULL ? "?" : name);
  exit(1);
}

#endif
