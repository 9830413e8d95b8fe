/// @file hooks.h
/// The preload library's access to the table of cupti/abi/hooks_v1.h.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_HOOKS_H
#define CONVTRACE_INTERPOSER_PRELOAD_HOOKS_H

#include <stdatomic.h>
#include <stddef.h>

#include "cupti/abi/hooks_v1.h"

extern _Atomic(const struct convtrace_hooks_v1*) convtrace_hooks_v1;

/// Set at process start: whether the driver loads another tool's library instead of the engine.
extern int convtrace_other_injection;

static inline const struct convtrace_hooks_v1* convtrace_hooks(void) {
  return atomic_load_explicit(&convtrace_hooks_v1, memory_order_acquire);
}

/// True if the engine that published `hooks` (may be null) has filled this entry.
#define CONVTRACE_HAS_HOOK(hooks, entry)                                           \
  ((hooks) != NULL &&                                                              \
   (hooks)->bytes >= offsetof(struct convtrace_hooks_v1, entry) + sizeof(void*) && \
   (hooks)->entry != NULL)

#endif
