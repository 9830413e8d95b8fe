/// @file quarantine.h
/// CONVTRACE_QUARANTINE for CPU tensors: memory that c10 frees is freed later, so that no other
/// allocation gets its address for a while.
///
/// Only memory that PyTorch's CPU allocator frees is held (c10::free_cpu, which libc10 calls
/// through its PLT), since it may not be used any more: the last 64 MiB, at most 1024 blocks. A
/// process whose memory is limited, so that an allocation may fail, holds nothing.
///
/// Threads:  any. If two threads free at a time, the second one's memory is freed at once; so it is
///           in a fork child whose parent was in this function.
/// Errors:   none.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_QUARANTINE_H
#define CONVTRACE_INTERPOSER_PRELOAD_QUARANTINE_H

/// Set by convtrace_begin_quarantine(): whether memory of CPU tensors is held.
extern int convtrace_quarantine_v1;

/// Call at process start.
void convtrace_begin_quarantine(void);

#endif
