/// @file gate.h
/// The driver entry gate: our functions in place of the driver's launch functions, whichever way a
/// program gets hold of them: linked, by dlsym, or by cuGetProcAddress.
///
/// Without an engine every wrapper is two loads and a call. Without a driver the wrappers are what
/// a missing symbol is: dlsym does not find them, and calling one says CUDA_ERROR_NOT_FOUND.
///
/// Threads:  any.
/// Errors:   results are the driver's.
/// Source:   CUDA driver API, "Driver Entry Point Access". The CUDA runtime asks dlsym for
///           cuGetProcAddress_v2, and that for everything else, itself included.
#ifndef CONVTRACE_INTERPOSER_STUB_GATE_H
#define CONVTRACE_INTERPOSER_STUB_GATE_H

#include <stdint.h>

#include "interposer/stub/elf_lookup.h"

#define CONVTRACE_ERROR_NOT_FOUND 500 /* CUDA_ERROR_NOT_FOUND */

#define CONVTRACE_GATED_FUNCTIONS(X) \
  X(cuGetProcAddress)                \
  X(cuGetProcAddress_v2)             \
  X(cuLaunchKernel)                  \
  X(cuLaunchKernel_ptsz)             \
  X(cuLaunchKernelEx)                \
  X(cuLaunchKernelEx_ptsz)           \
  X(cuLaunchCooperativeKernel)       \
  X(cuLaunchCooperativeKernel_ptsz)  \
  X(cuGraphLaunch)                   \
  X(cuGraphLaunch_ptsz)

enum convtrace_gated {
#define CONVTRACE_X(name) k_##name,
  CONVTRACE_GATED_FUNCTIONS(CONVTRACE_X)
#undef CONVTRACE_X
      kGatedCount
};

/// @return the driver's own function, or null as long as no driver is loaded.
convtrace_function convtrace_driver_function(enum convtrace_gated function);

/// Driver handles are void*, CUresult is int (see hooks_v1.h). _ptsz: stream 0 is the per-thread
/// default stream.
int cuGetProcAddress(const char* symbol, void** function, int cuda_version, uint64_t flags);
int cuGetProcAddress_v2(const char* symbol, void** function, int cuda_version, uint64_t flags,
                        int* status);
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void* stream, void** params, void** extra);
int cuLaunchKernel_ptsz(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        void* stream, void** params, void** extra);
int cuLaunchKernelEx(const void* config, void* function, void** params, void** extra);
int cuLaunchKernelEx_ptsz(const void* config, void* function, void** params, void** extra);
int cuLaunchCooperativeKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, void* stream, void** params);
int cuLaunchCooperativeKernel_ptsz(void* function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, void* stream,
                                   void** params);
int cuGraphLaunch(void* graph_exec, void* stream);
int cuGraphLaunch_ptsz(void* graph_exec, void* stream);

#endif
