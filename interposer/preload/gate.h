/// @file gate.h
/// Wrappers of the driver's launch functions, and of its functions that capture, make and change
/// graphs. Programs get them however they look a function up: linked, by dlsym, or by
/// cuGetProcAddress.
///
/// Without an engine a wrapper costs two loads and a call. Without a driver the wrappers behave
/// like missing symbols: dlsym does not find them, and a call returns CUDA_ERROR_NOT_FOUND.
///
/// Threads:  any.
/// Errors:   results are the driver's.
/// Source:   CUDA driver API, "Driver Entry Point Access". The CUDA runtime asks dlsym for
///           cuGetProcAddress_v2, and that for all other functions, also for itself. For a name and
///           a version the driver returns one of its exported functions. The wrapper is chosen by
///           that function's address, so both have the same parameters.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_GATE_H
#define CONVTRACE_INTERPOSER_PRELOAD_GATE_H

#include <stddef.h>
#include <stdint.h>

#include "interposer/preload/elf_lookup.h"

#define CONVTRACE_ERROR_NOT_FOUND 500 /* CUDA_ERROR_NOT_FOUND */

/// Parameters of the functions that launch: FIRST(type, name) NEXT(type, name)...
/* clang-format off */
#define COOPERATIVE_FIELDS(FIRST, NEXT) \
  FIRST(void*, function) \
  NEXT(unsigned, grid_x) NEXT(unsigned, grid_y) NEXT(unsigned, grid_z) \
  NEXT(unsigned, block_x) NEXT(unsigned, block_y) NEXT(unsigned, block_z) \
  NEXT(unsigned, shared_bytes) NEXT(void*, stream) NEXT(void**, params)
#define KERNEL_FIELDS(FIRST, NEXT) COOPERATIVE_FIELDS(FIRST, NEXT) NEXT(void**, extra)
#define KERNEL_EX_FIELDS(FIRST, NEXT) \
  FIRST(const void*, config) NEXT(void*, function) NEXT(void**, params) NEXT(void**, extra)
#define MULTI_DEVICE_FIELDS(FIRST, NEXT) FIRST(void*, list) NEXT(unsigned, count) NEXT(unsigned, flags)
#define GRAPH_FIELDS(FIRST, NEXT) FIRST(void*, graph_exec) NEXT(void*, stream)
/* clang-format on */

enum convtrace_gated {
#define GATED(name) k_##name,
#include "interposer/preload/gated.def"
  kGatedCount
};

#define PARAMETER(type, name) type name
#define NEXT_PARAMETER(type, name) , type name
#define LAUNCH(name, per_thread, call, FIELDS) int name(FIELDS(PARAMETER, NEXT_PARAMETER));
#define CALL(name, PARAMETERS, ...) int name PARAMETERS;
#define OWN(name, PARAMETERS) int name PARAMETERS;
#include "interposer/preload/gated.def"

/// Set at process start: whether CONVTRACE_POISON or CONVTRACE_QUARANTINE is on. Constant
/// afterwards.
extern int convtrace_keeps_memory;

/// @return the driver's own function; null while no driver is loaded.
convtrace_function convtrace_driver_function(enum convtrace_gated function);

/// @return whether `name` is one of the functions that take CUPTI's only subscription.
int convtrace_is_subscription(const char* name);

/// A caller looks one of them up, to call it: the engine ends its own subscription. There may be
/// several copies of CUPTI, so the caller gets the function of the copy that it asked, without a
/// wrapper.
/// @param found  the result of the real dlsym. @return the result to give; null: no CUPTI is
/// loaded.
void* convtrace_found_subscription(void* found, const char* name);

#endif
