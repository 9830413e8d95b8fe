/// @file nccl_wrappers.c
/// The functions that programs get in place of NCCL's: what the rows of nccl.def say.

#include <stdatomic.h>
#include <string.h>

#include "interposer/preload/elf_lookup.h"
#include "interposer/preload/hooks.h"
#include "interposer/preload/nccl.h"

#define MOST_COPIES 4
#define NCCL_FILE "libnccl.so"

/// A copy of NCCL in this process.
struct copy {
  uintptr_t begin, end; /* of the object that holds it */
  int is_library;       /* its file is libnccl.so */
  convtrace_function real[kNcclCount];
  struct convtrace_nccl_library library;
};

static const char* const kNames[kNcclCount] = {
#define NCCL(name, ...) #name,
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

/// The name for interposers is preferred: another library may have taken the place of the plain one.
static convtrace_function find_real(uintptr_t address, const char* name) {
  char longer[64] = "p";
  strncat(longer, name, sizeof longer - 2);
  const convtrace_function found = convtrace_find_at(address, longer);
  return found != NULL ? found : convtrace_find_at(address, name);
}

static void fill(struct copy* copy, const struct convtrace_object* object) {
  copy->begin = object->begin;
  copy->end = object->end;
  copy->is_library = object->is_named;
  for (size_t i = 0; i < kNcclCount; ++i) copy->real[i] = find_real(object->begin, kNames[i]);
  copy->library.comm_count = (int (*)(const void*, int*))find_real(object->begin, "ncclCommCount");
  copy->library.comm_user_rank =
      (int (*)(const void*, int*))find_real(object->begin, "ncclCommUserRank");
}

/// Looks for the copies that are loaded now. @return how many.
static size_t find_copies(struct copy found[MOST_COPIES]) {
  struct convtrace_object objects[MOST_COPIES];
  const size_t count = convtrace_objects_with("ncclGroupStart", NCCL_FILE, objects, MOST_COPIES);
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
    copies[count] = found[i];
    atomic_store_explicit(&copy_count, ++count, memory_order_release);
  }
  atomic_store_explicit(&looked_at, loaded, memory_order_release);
  atomic_flag_clear(&adding);
}

static const struct copy* choose(const struct copy* from, size_t count, uintptr_t caller) {
  const struct copy* best = count > 0 ? from : NULL;
  for (size_t i = 0; i < count; ++i) {
    if (caller - from[i].begin < from[i].end - from[i].begin) return &from[i];
    if (from[i].is_library && !best->is_library) best = &from[i];
  }
  return best;
}

/// What a call goes to; null: nothing.
struct target {
  uintptr_t object; /* an address in it */
  convtrace_function real;
  struct convtrace_nccl_library library;
};

static struct target target_in(const struct copy* copy, int function) {
  if (copy == NULL) return (struct target){0, NULL, {NULL, NULL}};
  return (struct target){copy->begin, copy->real[function], copy->library};
}

/// @param caller  an address inside its code; 0: nobody's.
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

void* convtrace_found_nccl(void* found, int function) {
  const uintptr_t own = (uintptr_t)kWrappers[function];
  const struct target to = target_for(0, function);
  if ((uintptr_t)found == own) return to.real != NULL ? found : NULL;
  if (found == NULL || to.real == NULL) return found;
  const convtrace_function plain = convtrace_find_at(to.object, kNames[function]);
  return (uintptr_t)found == (uintptr_t)plain ? (void*)own : found;
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
