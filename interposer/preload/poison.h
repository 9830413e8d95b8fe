/// @file poison.h
/// CONVTRACE_POISON: the memory of a CPU tensor holds 0x7FFDFFD5 from its allocation until it is
/// written, and 0xFF after its free. Both are NaNs in floats of every width but 8 bits; the first
/// is a NaN that no processor produces, and an unlikely integer.
///
/// Memory may be filled only where c10's own CPU allocator reports: it reports an allocation before
/// the first write, and a free after the last read. Other callers report mapped
/// files (torch/csrc: MapAllocator), whose memory must not be written before or after. So the
/// caller of the report must be c10 itself.
///
/// Threads:  any.
/// Errors:   in doubt nothing is filled.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_POISON_H
#define CONVTRACE_INTERPOSER_PRELOAD_POISON_H

#include <stdint.h>

#include "interposer/preload/elf_lookup.h"

/// Set at process start.
extern int convtrace_poisons;

/// @param bytes    negative: a free.
/// @param device   of the report: a c10::Device.
/// @param caller   return address of the report.
/// @param of_c10   any function of libc10.
void convtrace_poison(void* pointer, int64_t bytes, uint64_t device, const void* caller,
                      convtrace_function of_c10);

#endif
