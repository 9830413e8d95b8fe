/// @file poison.h
/// CONVTRACE_POISON: a CPU tensor's memory holds 0x7FFDFFD5 from when it is given out until it is
/// written, and 0xFF once it was given back. Both are NaNs in floats of any width but 8 bits; the
/// first is one that no processor makes, and no likely integer.
///
/// Legal where c10's own CPU allocator reports: it does so behind the allocation, when nobody has
/// written there yet, and in front of the free, when nobody may read there any more. Others report
/// files that are mapped (torch/csrc: MapAllocator), in front of which and behind which the memory
/// is not ours to write; so the caller must be c10 itself.
///
/// Threads:  any.
/// Errors:   in doubt nothing is filled.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_POISON_H
#define CONVTRACE_INTERPOSER_PRELOAD_POISON_H

#include <stdint.h>

#include "interposer/preload/elf_lookup.h"

/// Set at process start.
extern int convtrace_poisons;

/// @param bytes    negative: given back.
/// @param device   of the report: a c10::Device.
/// @param caller   return address of the report.
/// @param of_c10   a function of libc10.
void convtrace_poison(void* pointer, int64_t bytes, uint64_t device, const void* caller,
                      convtrace_function of_c10);

#endif
