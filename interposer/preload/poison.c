#include "interposer/preload/poison.h"

#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

int convtrace_poisons = 0;

/// Addresses of one loaded object.
struct range {
  uintptr_t inside; /* asked for */
  uintptr_t begin, end;
};

static int find_range(struct dl_phdr_info* info, size_t size, void* out) {
  (void)size;
  struct range* range = out;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    if (header->p_type != PT_LOAD) continue;
    const uintptr_t first = info->dlpi_addr + header->p_vaddr;
    if (first < begin) begin = first;
    if (first + header->p_memsz > end) end = first + header->p_memsz;
  }
  if (range->inside < begin || range->inside >= end) return 0;
  range->begin = begin;
  range->end = end;
  return 1;
}

/// libc10 is looked for once; it is never unloaded.
static int is_of_c10(const void* caller, convtrace_function of_c10) {
  static _Atomic(uintptr_t) begin, end;
  uintptr_t last = atomic_load_explicit(&end, memory_order_acquire);
  if (last == 0) {
    struct range range = {(uintptr_t)of_c10, 0, 0};
    if (of_c10 == NULL || dl_iterate_phdr(find_range, &range) == 0) return 0;
    atomic_store_explicit(&begin, range.begin, memory_order_relaxed);
    atomic_store_explicit(&end, last = range.end, memory_order_release);
  }
  const uintptr_t first = atomic_load_explicit(&begin, memory_order_relaxed);
  return (uintptr_t)caller >= first && (uintptr_t)caller < last;
}

static void fill_fresh(void* pointer, size_t bytes) {
  static const uint32_t kFresh = 0x7FFDFFD5; /* also in cupti/memory/quarantine.h */
  const size_t words = bytes / sizeof kFresh;
  uint32_t* const data = pointer;
  for (size_t i = 0; i < words; ++i) data[i] = kFresh;
  memcpy(data + words, &kFresh, bytes % sizeof kFresh);
}

void convtrace_poison(void* pointer, int64_t bytes, uint64_t device, const void* caller,
                      convtrace_function of_c10) {
  const int cpu = (uint8_t)device == 0;
  if (!convtrace_poisons || !cpu || pointer == NULL || !is_of_c10(caller, of_c10)) return;
  if (bytes < 0) {
    memset(pointer, 0xFF, (size_t)-bytes);
  } else {
    fill_fresh(pointer, (size_t)bytes);
  }
}
