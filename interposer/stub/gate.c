#include "interposer/stub/gate.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define PER_THREAD_DEFAULT_STREAM 2 /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

typedef int (*get_proc_address_fn)(const char*, void**, int, uint64_t);
typedef int (*get_proc_address_v2_fn)(const char*, void**, int, uint64_t, int*);
typedef void* (*dlsym_fn)(void*, const char*);

struct entry {
  const char* name;
  convtrace_function wrapper;
  _Atomic(convtrace_function) real;
  const char* missing; /* what a failed dlsym complains about */
  const char* asked;   /* see CONVTRACE_GATED_FUNCTIONS */
  int since;
  int per_thread;
};

static struct entry entries[kGatedCount] = {
#define CONVTRACE_X(f, asked_name, version, ptsz) \
  {.name = #f,                                    \
   .wrapper = (convtrace_function)f,              \
   .missing = #f " (no CUDA driver is loaded)",   \
   .asked = #asked_name,                          \
   .since = version,                              \
   .per_thread = ptsz},
    CONVTRACE_GATED_FUNCTIONS(CONVTRACE_X)
#undef CONVTRACE_X
};

/// Whether programs are to get ours instead of the driver's.
static int is_gated(const struct entry* entry) {
  return convtrace_keeps_memory || entry < &entries[k_cuMemAlloc_v2];
}

/// Every dlsym call of the program comes through here: two characters decide nearly all of them.
static struct entry* find_entry(const char* name) {
  if (name == NULL || name[0] != 'c' || name[1] != 'u') return NULL;
  for (size_t i = 0; i < kGatedCount; ++i) {
    if (strcmp(name, entries[i].name) == 0) return &entries[i];
  }
  return NULL;
}

static convtrace_function driver_function(struct entry* entry) {
  convtrace_function real = atomic_load_explicit(&entry->real, memory_order_acquire);
  if (real == NULL) {
    real = convtrace_find_in("libcuda.so", entry->name);
    atomic_store_explicit(&entry->real, real, memory_order_release);
  }
  return real;
}

convtrace_function convtrace_driver_function(enum convtrace_gated function) {
  return driver_function(&entries[function]);
}

static void* address_of(convtrace_function function) { return (void*)(uintptr_t)function; }

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

/// What dlsym (dlsym_x86_64.S) does: go on to `next` as if we were not there, or return `value`.
struct convtrace_dlsym_answer {
  void* value;
  dlsym_fn next;
};
struct convtrace_dlsym_answer convtrace_dlsym(void* handle, const char* name);

struct convtrace_dlsym_answer convtrace_dlsym(void* handle, const char* name) {
  const dlsym_fn next = real_dlsym();
  struct entry* entry = find_entry(name);
  /* RTLD_NEXT means: after the caller. Only a real dlsym that returns to the caller can tell. */
  if (entry == NULL || handle == RTLD_NEXT) return (struct convtrace_dlsym_answer){NULL, next};

  void* found = next(handle, name);
  void* driver = address_of(driver_function(entry));
  void* wrapper = address_of(entry->wrapper);
  if (found == wrapper && driver == NULL) found = next(handle, entry->missing); /* sets dlerror */
  if (found != NULL && found == driver && is_gated(entry)) found = wrapper;
  return (struct convtrace_dlsym_answer){found, NULL};
}

/// Which of ours stands for what the driver was asked for: the newest that is not newer than the
/// version asked for. Null when it is none of them.
static struct entry* entry_for_request(const char* symbol, int cuda_version, uint64_t flags) {
  if (find_entry(symbol) == NULL) return NULL;
  const int per_thread = (flags & PER_THREAD_DEFAULT_STREAM) != 0;
  struct entry* found = NULL;
  for (size_t i = 0; i < kGatedCount; ++i) {
    struct entry* entry = &entries[i];
    if (strcmp(symbol, entry->asked) != 0 || entry->since > cuda_version) continue;
    if (entry->per_thread <= per_thread) found = entry; /* twins and newer ones come later */
  }
  return found != NULL ? found : find_entry(symbol);
}

static void gate_result(int result, const char* symbol, void** function, int cuda_version,
                        uint64_t flags) {
  if (result != 0 || function == NULL || *function == NULL) return;
  struct entry* entry = entry_for_request(symbol, cuda_version, flags);
  if (entry == NULL || !is_gated(entry) || driver_function(entry) == NULL) return;
  /* Behind the versions that the table knows a name may mean a function with other parameters. */
  if (cuda_version > CONVTRACE_KNOWN_CUDA && *function != address_of(driver_function(entry)))
    return;
  *function = address_of(entry->wrapper);
}

int cuGetProcAddress(const char* symbol, void** function, int cuda_version, uint64_t flags) {
  const get_proc_address_fn real =
      (get_proc_address_fn)convtrace_driver_function(k_cuGetProcAddress);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  const int result = real(symbol, function, cuda_version, flags);
  gate_result(result, symbol, function, cuda_version, flags);
  return result;
}

int cuGetProcAddress_v2(const char* symbol, void** function, int cuda_version, uint64_t flags,
                        int* status) {
  const get_proc_address_v2_fn real =
      (get_proc_address_v2_fn)convtrace_driver_function(k_cuGetProcAddress_v2);
  if (real == NULL) return CONVTRACE_ERROR_NOT_FOUND;
  const int result = real(symbol, function, cuda_version, flags, status);
  gate_result(result, symbol, function, cuda_version, flags);
  return result;
}
