/// @file cupti_wrappers.c
/// Hands CUPTI's subscription, of which a process has one, to the program: if the engine holds it
/// when another part of the program asks for it, the engine ends its own. PyTorch's profiler asks
/// once in a process and, if refused, never sees the GPU; Triton's raises an error.
///
/// Source:   cupti_callbacks.h, "Only a single subscriber can be registered at a time". The activity
///           functions without a subscriber are shared by the process and work beside the engine's.

#include <stdint.h>
#include <string.h>

#include "interposer/preload/gate.h"
#include "interposer/preload/hooks.h"

#define NOT_INITIALIZED 15 /* CUPTI_ERROR_NOT_INITIALIZED */

static void give_cupti_away(void) {
  const struct convtrace_hooks_v1* hooks = convtrace_hooks();
  if (CONVTRACE_HAS_HOOK(hooks, give_cupti_away)) hooks->give_cupti_away();
}

#define WRAPPER(name, PARAMETERS, ARGUMENTS)                                           \
  int name PARAMETERS;                                                                 \
  int name PARAMETERS {                                                                \
    int(*const real) PARAMETERS = (int(*) PARAMETERS)convtrace_find_after_self(#name); \
    if (real == NULL) return NOT_INITIALIZED;                                          \
    give_cupti_away();                                                                 \
    return real ARGUMENTS;                                                             \
  }

typedef void (*callback_fn)(void);
WRAPPER(cuptiSubscribe, (void** subscriber, callback_fn callback, void* data),
        (subscriber, callback, data))
WRAPPER(cuptiSubscribe_v2, (void** subscriber, callback_fn callback, void* data, void* params),
        (subscriber, callback, data, params))

int convtrace_is_subscription(const char* name) {
  return strcmp(name, "cuptiSubscribe") == 0 || strcmp(name, "cuptiSubscribe_v2") == 0;
}

void* convtrace_found_subscription(void* found, const char* name) {
  const int is_v2 = name[strlen("cuptiSubscribe")] != '\0';
  const uintptr_t own = is_v2 ? (uintptr_t)cuptiSubscribe_v2 : (uintptr_t)cuptiSubscribe;
  if ((uintptr_t)found == own && convtrace_find_after_self(name) == NULL) return NULL;
  if (found != NULL) give_cupti_away();
  return found;
}
