#include "interposer/preload/gate.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "interposer/preload/nccl.h"

typedef int (*get_proc_address_fn)(const char*, void**, int, uint64_t);
typedef int (*get_proc_address_v2_fn)(const char*, void**, int, uint64_t, int*);
typedef void* (*dlsym_fn)(void*, const char*);

struct entry {
  const char* name;
  convtrace_function wrapper;
  _Atomic(convtrace_function) real; /* null: no driver, or one without it */
  const char* missing;              /* the name in dlerror after a failed dlsym */
};

static struct entry entries[kGatedCount] = {
#define GATED(f) \
  {.name = #f, .wrapper = (convtrace_function)f, .missing = #f " (no CUDA driver is loaded)"},
#include "interposer/preload/gated.def"
};

/// Every dlsym call of the program comes through here: two characters decide nearly all of them.
static struct entry* find_entry(const char* name) {
  if (name == NULL || name[0] != 'c' || name[1] != 'u') return NULL;
  for (size_t i = 0; i < kGatedCount; ++i) {
    if (strcmp(name, entries[i].name) == 0) return &entries[i];
  }
  return NULL;
}

/// All at once, when there is a driver: convtrace_find_in keeps it loaded.
/// @return whether there is one.
static int find_driver(void) {
  static _Atomic(int) found;
  if (atomic_load_explicit(&found, memory_order_acquire)) return 1;
  if (convtrace_find_in("libcuda.so", "cuInit") == NULL) return 0;
  for (size_t i = 0; i < kGatedCount; ++i) {
    const convtrace_function real = convtrace_find_in("libcuda.so", entries[i].name);
    atomic_store_explicit(&entries[i].real, real, memory_order_release);
  }
  atomic_store_explicit(&found, 1, memory_order_release);
  return 1;
}

static convtrace_function real_of(const struct entry* entry) {
  return atomic_load_explicit(&entry->real, memory_order_acquire);
}

convtrace_function convtrace_driver_function(enum convtrace_gated function) {
  const convtrace_function real = real_of(&entries[function]);
  if (real != NULL || !find_driver()) return real;
  return real_of(&entries[function]);
}

static void* address_of(convtrace_function function) { return (void*)(uintptr_t)function; }

/// @return what programs are to get for an address that driver or loader gave out: our wrapper of
/// the function that lies there, else the address itself.
static void* gated(void* address) {
  const size_t count = convtrace_keeps_memory ? kGatedCount : k_cuMemAlloc_v2;
  if (address == NULL || !find_driver()) return address;
  for (size_t i = 0; i < count; ++i) {
    if (address == address_of(real_of(&entries[i]))) return address_of(entries[i].wrapper);
  }
  return address;
}

static void* find_nothing(void* handle, const char* name) {
  (void)handle;
  (void)name;
  return NULL;
}

static dlsym_fn real_dlsym(void) {
  static _Atomic(convtrace_function) cache;
  convtrace_function real = atomic_load_explicit(&cache, memory_order_acquire);
  if (real == NULL) {
    real = convtrace_find_after_self("dlsym");
    atomic_store_explicit(&cache, real, memory_order_release);
  }
  return real != NULL ? (dlsym_fn)real : find_nothing;
}

/// The decision about a call of dlsym, which dlsym_*.S carries out: jump to `next` with the caller's
/// return address or, if `next` is null, return `value`.
struct convtrace_dlsym_answer {
  void* value;
  dlsym_fn next;
};
/// @param asked  the name that `next` gets: it may be replaced.
struct convtrace_dlsym_answer convtrace_dlsym(void* handle, const char* name, const char** asked);

/// `found` may be wrong for RTLD_DEFAULT: only a real dlsym that returns to the caller searches the
/// caller's own scope.
static struct convtrace_dlsym_answer find_nccl(void* handle, int nccl, void* found, dlsym_fn next,
                                               const char** asked) {
  const struct convtrace_nccl_answer answer = convtrace_found_nccl(found, nccl);
  if (answer.second != NULL && handle == RTLD_DEFAULT) {
    *asked = answer.second;
    return (struct convtrace_dlsym_answer){NULL, next};
  }
  /* dlerror is set by what is not found */
  if (answer.second != NULL && next(handle, answer.second) == NULL)
    return (struct convtrace_dlsym_answer){NULL, NULL};
  if (answer.value == NULL && found != NULL)
    (void)next(handle, "nccl (this function is in no library that is loaded)");
  return (struct convtrace_dlsym_answer){answer.value, NULL};
}

struct convtrace_dlsym_answer convtrace_dlsym(void* handle, const char* name, const char** asked) {
  const dlsym_fn next = real_dlsym();
  struct entry* entry = find_entry(name);
  const int subscribes = entry == NULL && name != NULL && convtrace_is_subscription(name);
  /* RTLD_NEXT means: after the caller. Only a real dlsym that returns to the caller can tell. */
  const int nccl = name != NULL && name[0] == 'n' ? convtrace_nccl_index(name) : -1;
  if ((entry == NULL && !subscribes && nccl < 0) || handle == RTLD_NEXT)
    return (struct convtrace_dlsym_answer){NULL, next};

  void* found = next(handle, name);
  if (nccl >= 0) return find_nccl(handle, nccl, found, next, asked);
  if (subscribes) {
    void* answer = convtrace_found_subscription(found, name);
    if (answer != found) (void)next(handle, "cuptiSubscribe (no CUPTI is loaded)"); /* dlerror */
    return (struct convtrace_dlsym_answer){answer, NULL};
  }
  if (found == address_of(entry->wrapper) && convtrace_driver_function(entry - entries) == NULL)
    found = next(handle, entry->missing); /* sets dlerror */
  return (struct convtrace_dlsym_answer){gated(found), NULL};
}

int cuGetProcAddress(const char* symbol, void** function, int cuda_version, uint64_t flags) {
  const get_proc_address_fn real =
      (get_proc_address_fn)convtrace_driver_function(k_cuGetProcAddress);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  const int result = real(symbol, function, cuda_version, flags);
  if (result == 0 && function != NULL) *function = gated(*function);
  return result;
}

int cuGetProcAddress_v2(const char* symbol, void** function, int cuda_version, uint64_t flags,
                        int* status) {
  const get_proc_address_v2_fn real =
      (get_proc_address_v2_fn)convtrace_driver_function(k_cuGetProcAddress_v2);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  const int result = real(symbol, function, cuda_version, flags, status);
  if (result == 0 && function != NULL) *function = gated(*function);
  return result;
}
