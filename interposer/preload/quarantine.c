#include "interposer/preload/quarantine.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include "interposer/preload/elf_lookup.h"

#define FREE_CPU "_ZN3c108free_cpuEPv"
#define MOST_BLOCKS 1024
#define MOST_BYTES ((size_t)64 << 20)

typedef void (*free_cpu_fn)(void*);

void free_cpu(void* pointer) __asm__(FREE_CPU);

int convtrace_quarantine_v1 = 0;

struct block {
  void* pointer;
  size_t bytes;
};

/// A ring; the oldest block is at `oldest`.
static struct block held[MOST_BLOCKS];
static size_t oldest, count, held_bytes;
static atomic_flag busy = ATOMIC_FLAG_INIT;

/// @return whether an allocation may fail for lack of memory, so that held memory could be the cause:
/// a limit is set, or the kernel does not overcommit.
static int may_run_short(void) {
  struct rlimit space, data;
  char policy = '2';
  if (getrlimit(RLIMIT_AS, &space) != 0 || getrlimit(RLIMIT_DATA, &data) != 0) return 1;
  if (space.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY) return 1;
  const int file = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (file < 0 || read(file, &policy, 1) != 1) policy = '2';
  if (file >= 0) close(file);
  return policy == '2';
}

void convtrace_begin_quarantine(void) { convtrace_quarantine_v1 = !may_run_short(); }

/// Takes blocks out until there is room for `bytes` in one more. @return how many, in `out`.
static size_t make_room(size_t bytes, struct block out[MOST_BLOCKS]) {
  size_t taken = 0;
  while (count > 0 && (count == MOST_BLOCKS || held_bytes + bytes > MOST_BYTES)) {
    out[taken++] = held[oldest];
    held_bytes -= held[oldest].bytes;
    oldest = (oldest + 1) % MOST_BLOCKS;
    --count;
  }
  return taken;
}

void free_cpu(void* pointer) {
  static _Atomic(convtrace_function) cache;
  static struct block out[MOST_BLOCKS]; /* used by the thread that has set `busy` */
  free_cpu_fn next = (free_cpu_fn)atomic_load_explicit(&cache, memory_order_acquire);
  if (next == NULL) {
    next = (free_cpu_fn)convtrace_find_after_self(FREE_CPU);
    if (next == NULL) return; /* nobody allocated it */
    atomic_store_explicit(&cache, (convtrace_function)next, memory_order_release);
  }
  const size_t bytes = convtrace_quarantine_v1 && pointer != NULL ? malloc_usable_size(pointer) : 0;
  if (bytes == 0 || bytes > MOST_BYTES / 4 || atomic_flag_test_and_set(&busy)) {
    next(pointer);
    return;
  }
  const size_t taken = make_room(bytes, out);
  held[(oldest + count++) % MOST_BLOCKS] = (struct block){pointer, bytes};
  held_bytes += bytes;
  for (size_t i = 0; i < taken; ++i) next(out[i].pointer);
  atomic_flag_clear(&busy);
}
