/// @file gate.h
/// The driver entry gate: our functions in place of the driver's launch functions and of those that
/// record, make and change graphs, whichever way a program gets hold of them: linked, by dlsym,
/// or by cuGetProcAddress.
///
/// Without an engine every wrapper is two loads and a call. Without a driver the wrappers are what
/// a missing symbol is: dlsym does not find them, and calling one says CUDA_ERROR_NOT_FOUND.
///
/// Threads:  any.
/// Errors:   results are the driver's.
/// Source:   CUDA driver API, "Driver Entry Point Access". The CUDA runtime asks dlsym for
///           cuGetProcAddress_v2, and that for everything else, itself included. A name and a
///           version mean what the driver answers: always one of its exported functions, by whose
///           address our wrapper of it is chosen, so that both have the same parameters.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_GATE_H
#define CONVTRACE_INTERPOSER_PRELOAD_GATE_H

#include <stddef.h>
#include <stdint.h>

#include "interposer/preload/elf_lookup.h"

#define CONVTRACE_ERROR_NOT_FOUND 500 /* CUDA_ERROR_NOT_FOUND */

/// X(the driver's function, as it is exported)
#define CONVTRACE_GATED_FUNCTIONS(X)      \
  X(cuGetProcAddress)                     \
  X(cuGetProcAddress_v2)                  \
  X(cuLaunchKernel)                       \
  X(cuLaunchKernel_ptsz)                  \
  X(cuLaunchKernelEx)                     \
  X(cuLaunchKernelEx_ptsz)                \
  X(cuLaunchCooperativeKernel)            \
  X(cuLaunchCooperativeKernel_ptsz)       \
  X(cuLaunchCooperativeKernelMultiDevice) \
  X(cuGraphLaunch)                        \
  X(cuGraphLaunch_ptsz)                   \
  X(cuGraphInstantiate)                   \
  X(cuGraphInstantiate_v2)                \
  X(cuGraphInstantiateWithFlags)          \
  X(cuGraphInstantiateWithParams)         \
  X(cuGraphInstantiateWithParams_ptsz)    \
  X(cuGraphExecUpdate)                    \
  X(cuGraphExecUpdate_v2)                 \
  X(cuGraphExecKernelNodeSetParams)       \
  X(cuGraphExecKernelNodeSetParams_v2)    \
  X(cuGraphExecNodeSetParams)             \
  X(cuGraphExecChildGraphNodeSetParams)   \
  X(cuGraphNodeSetEnabled)                \
  X(cuGraphExecDestroy)                   \
  X(cuStreamBeginCapture)                 \
  X(cuStreamBeginCapture_ptsz)            \
  X(cuStreamBeginCapture_v2)              \
  X(cuStreamBeginCapture_v2_ptsz)         \
  X(cuStreamBeginCaptureToGraph)          \
  X(cuStreamBeginCaptureToGraph_ptsz)     \
  X(cuStreamEndCapture)                   \
  X(cuStreamEndCapture_ptsz)              \
  CONVTRACE_MEMORY_FUNCTIONS(X)

/// Handed out only where convtrace_keeps_memory is set.
#define CONVTRACE_MEMORY_FUNCTIONS(X) \
  X(cuMemAlloc_v2)                    \
  X(cuMemAllocPitch_v2)               \
  X(cuMemAllocManaged)                \
  X(cuMemAllocAsync)                  \
  X(cuMemAllocAsync_ptsz)             \
  X(cuMemAllocFromPoolAsync)          \
  X(cuMemAllocFromPoolAsync_ptsz)     \
  X(cuMemCreate)                      \
  X(cuMemFree_v2)                     \
  X(cuMemFreeAsync)                   \
  X(cuMemFreeAsync_ptsz)              \
  X(cuMemGetInfo_v2)                  \
  X(cuIpcGetMemHandle)                \
  X(cuMemPoolExportPointer)           \
  X(cuMemGetHandleForAddressRange)    \
  X(cuCtxDestroy_v2)                  \
  X(cuGreenCtxDestroy)                \
  X(cuDevicePrimaryCtxRelease)        \
  X(cuDevicePrimaryCtxRelease_v2)     \
  X(cuDevicePrimaryCtxReset)          \
  X(cuDevicePrimaryCtxReset_v2)

enum convtrace_gated {
#define CONVTRACE_X(name) k_##name,
  CONVTRACE_GATED_FUNCTIONS(CONVTRACE_X)
#undef CONVTRACE_X
      kGatedCount
};

/// Set at process start: CONVTRACE_POISON or CONVTRACE_QUARANTINE is on. Constant afterwards.
extern int convtrace_keeps_memory;

/// @return the driver's own function, or null as long as no driver is loaded.
convtrace_function convtrace_driver_function(enum convtrace_gated function);

/// Whether `name` is one of the functions that take CUPTI's one subscription.
int convtrace_is_subscription(const char* name);

/// Somebody asks for one of them, to call it: the engine ends its own subscription. There may be
/// several copies of CUPTI, so who looks for one gets that one's function, without a wrapper.
/// @param found  what dlsym finds. @return what it is to say; null: no CUPTI is loaded.
void* convtrace_found_subscription(void* found, const char* name);

/// To be called before the driver's function that begins one: what the engine keeps of freed memory
/// goes back first.
void convtrace_capture_begins(void);

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
int cuLaunchCooperativeKernelMultiDevice(void* list, unsigned count, unsigned flags);
int cuGraphLaunch(void* graph_exec, void* stream);
int cuGraphLaunch_ptsz(void* graph_exec, void* stream);
int cuGraphInstantiate(void** exec, void* graph, void** error_node, char* log, size_t bytes);
int cuGraphInstantiate_v2(void** exec, void* graph, void** error_node, char* log, size_t bytes);
int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long flags);
int cuGraphInstantiateWithParams(void** exec, void* graph, void* params);
int cuGraphInstantiateWithParams_ptsz(void** exec, void* graph, void* params);
int cuGraphExecUpdate(void* exec, void* graph, void** error_node, int* update_result);
int cuGraphExecUpdate_v2(void* exec, void* graph, void* result_info);
int cuGraphExecKernelNodeSetParams(void* exec, void* node, const void* params);
int cuGraphExecKernelNodeSetParams_v2(void* exec, void* node, const void* params);
int cuGraphExecNodeSetParams(void* exec, void* node, void* params);
int cuGraphExecChildGraphNodeSetParams(void* exec, void* node, void* child);
int cuGraphNodeSetEnabled(void* exec, void* node, unsigned enabled);
int cuGraphExecDestroy(void* exec);
int cuStreamBeginCapture(void* stream);
int cuStreamBeginCapture_ptsz(void* stream);
int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamBeginCapture_v2_ptsz(void* stream, int mode);
int cuStreamBeginCaptureToGraph(void* stream, void* graph, const void* dependencies,
                                const void* edges, size_t count, int mode);
int cuStreamBeginCaptureToGraph_ptsz(void* stream, void* graph, const void* dependencies,
                                     const void* edges, size_t count, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuStreamEndCapture_ptsz(void* stream, void** graph);
int cuMemAlloc_v2(uint64_t* address, size_t bytes);
int cuMemAllocPitch_v2(uint64_t* address, size_t* pitch, size_t width, size_t height,
                       unsigned element);
int cuMemAllocManaged(uint64_t* address, size_t bytes, unsigned flags);
int cuMemAllocAsync(uint64_t* address, size_t bytes, void* stream);
int cuMemAllocAsync_ptsz(uint64_t* address, size_t bytes, void* stream);
int cuMemAllocFromPoolAsync(uint64_t* address, size_t bytes, void* pool, void* stream);
int cuMemAllocFromPoolAsync_ptsz(uint64_t* address, size_t bytes, void* pool, void* stream);
int cuMemCreate(uint64_t* handle, size_t bytes, const void* properties, unsigned long long flags);
int cuMemFree_v2(uint64_t address);
int cuMemFreeAsync(uint64_t address, void* stream);
int cuMemFreeAsync_ptsz(uint64_t address, void* stream);
int cuMemGetInfo_v2(size_t* available, size_t* total);
int cuIpcGetMemHandle(void* handle, uint64_t address);
int cuMemPoolExportPointer(void* share, uint64_t address);
int cuMemGetHandleForAddressRange(void* handle, uint64_t address, size_t bytes, int type,
                                  unsigned long long flags);
int cuCtxDestroy_v2(void* context);
int cuGreenCtxDestroy(void* context);
int cuDevicePrimaryCtxRelease(int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxReset(int device);
int cuDevicePrimaryCtxReset_v2(int device);

#endif
