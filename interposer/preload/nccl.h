/// @file nccl.h
/// Wrappers of NCCL's functions that make communicators and move data. Programs get them however
/// they look a function up: linked, or by dlsym, which is also the way of Python's ctypes.
///
/// A process may hold several copies of NCCL, or a library that takes its place, and a communicator
/// of one means nothing to another. A wrapper calls what its caller would have reached: the copy
/// inside the caller's own object (NCCL linked statically), else the first object behind this
/// library in load order. dlsym gives a wrapper in place of the functions of the latter alone; in
/// the caller's own scope (RTLD_DEFAULT) it finds NCCL itself, unrecorded, and only where the
/// caller can see it. The caller is known by the return address, so a tail call out of an object
/// with a copy of its own, in a process that has another one besides, is taken for a call of the
/// object behind it.
///
/// Without an engine a wrapper costs a few loads, one call of dl_iterate_phdr and a call. Without
/// NCCL the wrappers behave like missing symbols: dlsym does not find them, and a call returns
/// ncclSystemError.
///
/// Threads:  any.
/// Errors:   results are NCCL's.
/// Source:   nccl.h of NCCL 2.30. Each ncclX is a weak symbol, and pncclX another name of the same
///           function, for libraries that take the place of ncclX.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_NCCL_H
#define CONVTRACE_INTERPOSER_PRELOAD_NCCL_H

#include <stddef.h>
#include <stdint.h>

#define CONVTRACE_NCCL_SYSTEM_ERROR 2 /* ncclSystemError */

/// ncclUniqueId, which is passed by value.
struct convtrace_nccl_id {
  char bytes[128];
};

enum convtrace_nccl_function {
#define NCCL(name, ...) k_##name,
#include "interposer/preload/nccl.def"
  kNcclCount
};

#define NCCL(name, PARAMETERS, ...) int name PARAMETERS;
#include "interposer/preload/nccl.def"

/// @return the function of that name, a convtrace_nccl_function; -1: it has no wrapper.
int convtrace_nccl_index(const char* name);

/// The result of dlsym for a function that has a wrapper.
struct convtrace_nccl_answer {
  void* value;        /* null: no object has the function */
  const char* second; /* not null: `value` holds only if dlsym finds this name, too */
};

/// @param found  the result of the real dlsym.
struct convtrace_nccl_answer convtrace_found_nccl(void* found, int function);

#endif
