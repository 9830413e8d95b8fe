/// @file fakecuda.h
/// Defines kernels of test programs for the fake driver: the "image" that a program passes to
/// cuModuleLoadData or cuLibraryLoadData is a struct fakecuda_image, whose kernels are host
/// functions.
///
/// Plain C. README.md beside this file lists what the fake imitates and what it does not.
#ifndef CONVTRACE_TESTS_FAKECUDA_FAKECUDA_H
#define CONVTRACE_TESTS_FAKECUDA_FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One launch from the view of a kernel, which runs once for the whole grid.
struct fakecuda_launch {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  unsigned param_count;
  const void* const* params; /* the values, copied at the launch */
  /* Device memory cannot be touched through its address: this gives a pointer that can.
   * Null when [address, address + bytes) is not inside one live allocation; the context is then
   * lost (CUDA_ERROR_ILLEGAL_ADDRESS), as on a GPU. */
  void* (*device)(uint64_t address, size_t bytes);
  /* 0 at first. A kernel that leaves another value is not done: it is run again, with that value,
   * when other streams may have gone on. */
  uint64_t* unfinished;
};

struct fakecuda_kernel {
  const char* name;
  void (*run)(const struct fakecuda_launch* launch);
  unsigned param_count;
  const unsigned* param_bytes; /* each is aligned to the largest power of two that divides it, at
                                  most 8 */
};

#define FAKECUDA_MAGIC "FAKECUDA"

struct fakecuda_image {
  char magic[8]; /* FAKECUDA_MAGIC, without its terminating zero */
  unsigned kernel_count;
  const struct fakecuda_kernel* kernels;
};

#ifdef __cplusplus
}
#endif
#endif
