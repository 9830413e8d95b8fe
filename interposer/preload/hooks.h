/// @file hooks.h
/// The stub's side of cupti/abi/hooks_v1.h: the published table, if there is one.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_HOOKS_H
#define CONVTRACE_INTERPOSER_PRELOAD_HOOKS_H

#include <stdatomic.h>
#include <stddef.h>

#include "cupti/abi/hooks_v1.h"

extern _Atomic(const struct convtrace_hooks_v1*) convtrace_hooks_v1;

/// Set at process start: the driver loads another tool's library instead of the engine.
extern int convtrace_other_injection;

static inline const struct convtrace_hooks_v1* convtrace_hooks(void) {
  return atomic_load_explicit(&convtrace_hooks_v1, memory_order_acquire);
}

/// Whether the engine that published `hooks` (may be null) knows and fills this entry.
#define CONVTRACE_HAS_HOOK(hooks, entry)                                           \
  ((hooks) != NULL &&                                                              \
   (hooks)->bytes >= offsetof(struct convtrace_hooks_v1, entry) + sizeof(void*) && \
   (hooks)->entry != NULL)

#endif
