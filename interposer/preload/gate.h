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

#endif
