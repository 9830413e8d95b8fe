/// @file memory_wrappers.c
/// The gated functions that give and take the driver's memory. They do nothing but call the driver,
/// unless CONVTRACE_POISON or CONVTRACE_QUARANTINE is on: then the engine may keep what is freed,
/// and give it back when it is missing.

#include "interposer/preload/gate.h"
#include "interposer/preload/hooks.h"

#define OUT_OF_MEMORY 2 /* CUDA_ERROR_OUT_OF_MEMORY */

int convtrace_keeps_memory = 0;

static const struct convtrace_hooks_v1* hooks(void) {
  return convtrace_keeps_memory ? convtrace_hooks() : NULL;
}

static int tell(int call, uint64_t address, uint64_t bytes, void* stream) {
  const struct convtrace_hooks_v1* table = hooks();
  return CONVTRACE_HAS_HOOK(table, memory_call) ? table->memory_call(call, address, bytes, stream)
                                                : 0;
}

void convtrace_capture_begins(void) { (void)tell(CONVTRACE_MEMORY_CAPTURE, 0, 0, NULL); }

/// One wrapper: what is told before, the driver's function of the same name, once more if there was
/// too little memory and some could be given back, then, if it succeeded, what is told.
#define WRAPPER(name, PARAMETERS, ARGUMENTS, BEFORE, AFTER)                               \
  int name PARAMETERS {                                                                   \
    int(*const real) PARAMETERS = (int(*) PARAMETERS)convtrace_driver_function(k_##name); \
    if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;                                   \
    BEFORE;                                                                               \
    int result = real ARGUMENTS;                                                          \
    if (result == OUT_OF_MEMORY && tell(CONVTRACE_MEMORY_SHORT, 0, 0, NULL))              \
      result = real ARGUMENTS;                                                            \
    if (result == 0) {                                                                    \
      AFTER;                                                                              \
    }                                                                                     \
    return result;                                                                        \
  }
#define TELL(call, address, bytes, stream) (void)tell(call, address, bytes, stream)
#define NOTHING (void)0

/// CU_STREAM_PER_THREAD
#define PER_THREAD(stream) ((stream) == NULL ? (void*)2 : (stream))

WRAPPER(cuMemAlloc_v2, (uint64_t * address, size_t bytes), (address, bytes), NOTHING,
        TELL(CONVTRACE_MEMORY_GIVEN, *address, bytes, NULL))
#define GREW TELL(CONVTRACE_MEMORY_GREW, 0, 0, NULL)
WRAPPER(cuMemAllocPitch_v2,
        (uint64_t * address, size_t* pitch, size_t width, size_t height, unsigned element),
        (address, pitch, width, height, element), NOTHING, GREW)
WRAPPER(cuMemAllocManaged, (uint64_t * address, size_t bytes, unsigned flags),
        (address, bytes, flags), NOTHING, GREW)
WRAPPER(cuMemCreate,
        (uint64_t * handle, size_t bytes, const void* properties, unsigned long long flags),
        (handle, bytes, properties, flags), NOTHING, GREW)

#define GIVEN(stream) TELL(CONVTRACE_MEMORY_GIVEN_IN_ORDER, *address, bytes, stream)
WRAPPER(cuMemAllocAsync, (uint64_t * address, size_t bytes, void* stream), (address, bytes, stream),
        NOTHING, GIVEN(stream))
WRAPPER(cuMemAllocAsync_ptsz, (uint64_t * address, size_t bytes, void* stream),
        (address, bytes, stream), NOTHING, GIVEN(PER_THREAD(stream)))
WRAPPER(cuMemAllocFromPoolAsync, (uint64_t * address, size_t bytes, void* pool, void* stream),
        (address, bytes, pool, stream), NOTHING, GIVEN(stream))
WRAPPER(cuMemAllocFromPoolAsync_ptsz, (uint64_t * address, size_t bytes, void* pool, void* stream),
        (address, bytes, pool, stream), NOTHING, GIVEN(PER_THREAD(stream)))

#define TAKEN(stream) TELL(CONVTRACE_MEMORY_TAKEN_IN_ORDER, address, 0, stream)
WRAPPER(cuMemFreeAsync, (uint64_t address, void* stream), (address, stream), TAKEN(stream), NOTHING)
WRAPPER(cuMemFreeAsync_ptsz, (uint64_t address, void* stream), (address, stream),
        TAKEN(PER_THREAD(stream)), NOTHING)

int cuMemFree_v2(uint64_t address) {
  const convtrace_cuMemFree_fn real =
      (convtrace_cuMemFree_fn)convtrace_driver_function(k_cuMemFree_v2);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  const struct convtrace_hooks_v1* table = hooks();
  return CONVTRACE_HAS_HOOK(table, free_memory) ? table->free_memory(real, address) : real(address);
}

#define SHARED TELL(CONVTRACE_MEMORY_SHARED, address, 0, NULL)
WRAPPER(cuIpcGetMemHandle, (void* handle, uint64_t address), (handle, address), SHARED, NOTHING)
WRAPPER(cuMemPoolExportPointer, (void* share, uint64_t address), (share, address), SHARED, NOTHING)
WRAPPER(cuMemGetHandleForAddressRange,
        (void* handle, uint64_t address, size_t bytes, int type, unsigned long long flags),
        (handle, address, bytes, type, flags), SHARED, NOTHING)

#define WANTED TELL(CONVTRACE_MEMORY_WANTED, 0, 0, NULL)
WRAPPER(cuMemGetInfo_v2, (size_t * available, size_t* total), (available, total), WANTED, NOTHING)
WRAPPER(cuCtxDestroy_v2, (void* context), (context), WANTED, NOTHING)
WRAPPER(cuGreenCtxDestroy, (void* context), (context), WANTED, NOTHING)
WRAPPER(cuDevicePrimaryCtxRelease, (int device), (device), WANTED, NOTHING)
WRAPPER(cuDevicePrimaryCtxRelease_v2, (int device), (device), WANTED, NOTHING)
WRAPPER(cuDevicePrimaryCtxReset, (int device), (device), WANTED, NOTHING)
WRAPPER(cuDevicePrimaryCtxReset_v2, (int device), (device), WANTED, NOTHING)
