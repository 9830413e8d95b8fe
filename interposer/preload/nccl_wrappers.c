/// @file nccl_wrappers.c
/// The functions that replace NCCL's in programs, by the rows of nccl.def.

#include <stdatomic.h>
#include <string.h>

#include "interposer/preload/elf_lookup.h"
#include "interposer/preload/hooks.h"
#include "interposer/preload/nccl.h"

#define MOST_COPIES 4

/// An object in this process that defines NCCL's functions: NCCL, or a library that takes its place.
struct copy {
  uintptr_t begin, end;
  int is_behind; /* in load order, behind this library */
  int is_nccl;   /* it has the second names that NCCL gives its functions */
  convtrace_function real[kNcclCount];
  struct convtrace_nccl_library library;
};

static const char* const kNames[kNcclCount] = {
#define NCCL(name, ...) #name,
#include "interposer/preload/nccl.def"
};

static const char* const kSecondNames[kNcclCount] = {
#define NCCL(name, ...) "p" #name,
#include "interposer/preload/nccl.def"
};

static const convtrace_function kWrappers[kNcclCount] = {
#define NCCL(name, ...) (convtrace_function) name,
#include "interposer/preload/nccl.def"
};

/// Copies are only ever added, by who holds `adding`; those before `copy_count` do not change.
static struct copy copies[MOST_COPIES];
static _Atomic(size_t) copy_count;
static _Atomic(unsigned long long) looked_at; /* objects loaded when copies were last looked for */
static atomic_flag adding = ATOMIC_FLAG_INIT;

static void fill(struct copy* copy, const struct convtrace_object* object) {
  const uintptr_t at = object->begin;
  copy->begin = at;
  copy->end = object->end;
  copy->is_behind = object->is_behind;
  copy->is_nccl =
      convtrace_find_at(at, "ncclGroupStart") == convtrace_find_at(at, "pncclGroupStart");
  for (size_t i = 0; i < kNcclCount; ++i) copy->real[i] = convtrace_find_at(at, kNames[i]);
  copy->library.comm_count = (int (*)(const void*, int*))convtrace_find_at(at, "ncclCommCount");
  copy->library.comm_user_rank =
      (int (*)(const void*, int*))convtrace_find_at(at, "ncclCommUserRank");
}

/// Looks for the copies that are loaded now. @return how many.
static size_t find_copies(struct copy found[MOST_COPIES]) {
  struct convtrace_object objects[MOST_COPIES];
  const size_t count = convtrace_objects_with("ncclGroupStart", objects, MOST_COPIES);
  for (size_t i = 0; i < count; ++i) fill(&found[i], &objects[i]);
  return count;
}

static int is_known(const struct copy* copy, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (copies[i].begin == copy->begin) return 1;
  return 0;
}

/// Keeps them for later calls, unless another thread is at that.
static void keep(const struct copy* found, size_t found_count, unsigned long long loaded) {
  if (atomic_flag_test_and_set(&adding)) return;
  size_t count = atomic_load(&copy_count);
  for (size_t i = 0; i < found_count && count < MOST_COPIES; ++i) {
    if (is_known(&found[i], count)) continue;
    convtrace_keep_object(found[i].begin);
    copies[count] = found[i];
    atomic_store_explicit(&copy_count, ++count, memory_order_release);
  }
  atomic_store_explicit(&looked_at, loaded, memory_order_release);
  atomic_flag_clear(&adding);
}

/// The copy inside the caller's own object, else the first behind this library, which stays the
/// first whatever is loaded later. A library that replaces NCCL calls NCCL from its own functions of the
/// same names, so it is no object's own copy.
static const struct copy* choose(const struct copy* from, size_t count, uintptr_t caller) {
  const struct copy* first = NULL;
  for (size_t i = 0; i < count; ++i) {
    const int is_own = caller - from[i].begin < from[i].end - from[i].begin;
    if (is_own && from[i].is_nccl) return &from[i];
    if (first == NULL && from[i].is_behind) first = &from[i];
  }
  return first;
}

/// The function that a call is forwarded to; `real` null: there is none.
struct target {
  convtrace_function real;
  int is_nccl;
  struct convtrace_nccl_library library;
};

static struct target target_in(const struct copy* copy, int function) {
  if (copy == NULL) return (struct target){NULL, 0, {NULL, NULL}};
  return (struct target){copy->real[function], copy->is_nccl, copy->library};
}

/// @param caller  an address inside the caller's code; 0: unknown.
static struct target target_for(uintptr_t caller, int function) {
  const unsigned long long loaded = convtrace_objects_loaded();
  if (loaded != 0 && loaded == atomic_load_explicit(&looked_at, memory_order_acquire)) {
    const size_t count = atomic_load_explicit(&copy_count, memory_order_acquire);
    return target_in(choose(copies, count, caller), function);
  }
  struct copy found[MOST_COPIES];
  const size_t count = find_copies(found);
  keep(found, count, loaded);
  return target_in(choose(found, count, caller), function);
}

int convtrace_nccl_index(const char* name) {
  if (strncmp(name, "nccl", 4) != 0) return -1;
  for (int i = 0; i < kNcclCount; ++i)
    if (strcmp(name, kNames[i]) == 0) return i;
  return -1;
}

struct convtrace_nccl_answer convtrace_found_nccl(void* found, int function) {
  const uintptr_t own = (uintptr_t)kWrappers[function];
  const struct target to = target_for(0, function);
  if ((uintptr_t)found != own) {
    const int is_first = found != NULL && (uintptr_t)found == (uintptr_t)to.real;
    return (struct convtrace_nccl_answer){is_first ? (void*)own : found, NULL};
  }
  if (to.real == NULL) return (struct convtrace_nccl_answer){NULL, NULL};
  return (struct convtrace_nccl_answer){found, to.is_nccl ? kSecondNames[function] : NULL};
}

/// A communicator may be made by the call in which the driver starts the engine, so its wrapper
/// looks for the engine a second time.
#define NCCL(name, PARAMETERS, ARGUMENTS, ...)                                             \
  int name PARAMETERS {                                                                    \
    const struct target to = target_for((uintptr_t)__builtin_return_address(0), k_##name); \
    int(*const real) PARAMETERS = (int(*) PARAMETERS)to.real;                              \
    if (real == NULL) return CONVTRACE_NCCL_SYSTEM_ERROR;                                  \
    const struct convtrace_nccl_call call = {                                              \
        .bytes = sizeof call, .library = &to.library, __VA_ARGS__};                        \
    const struct convtrace_hooks_v1* hooks = convtrace_hooks();                            \
    if (CONVTRACE_HAS_HOOK(hooks, nccl_ended)) {                                           \
      hooks->nccl_begins(&call);                                                           \
      const int result = real ARGUMENTS;                                                   \
      hooks->nccl_ended(&call, result);                                                    \
      return result;                                                                       \
    }                                                                                      \
    const int result = real ARGUMENTS;                                                     \
    hooks = call.made != NULL ? convtrace_hooks() : NULL;                                  \
    if (CONVTRACE_HAS_HOOK(hooks, nccl_ended)) {                                           \
      hooks->nccl_begins(&call);                                                           \
      hooks->nccl_ended(&call, result);                                                    \
    }                                                                                      \
    return result;                                                                         \
  }
#include "interposer/preload/nccl.def"
