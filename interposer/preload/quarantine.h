/// @file quarantine.h
/// CONVTRACE_QUARANTINE for CPU tensors: what c10 frees is freed later, so that its address is
/// nobody else's for a while.
///
/// Held is what PyTorch's CPU allocator gives back (c10::free_cpu, which libc10 calls through its
/// PLT): memory that nobody may use any more. The last 64 MiB, of at most 1024 blocks. A process
/// whose memory is limited so that an allocation can fail holds nothing.
///
/// Threads:  any. Two at a time: the second one's memory is freed at once. So it is in a fork child
///           whose parent was here.
/// Errors:   none.
#ifndef CONVTRACE_INTERPOSER_PRELOAD_QUARANTINE_H
#define CONVTRACE_INTERPOSER_PRELOAD_QUARANTINE_H

/// Set by convtrace_begin_quarantine(): memory of CPU tensors is held.
extern int convtrace_quarantine_v1;

/// To be called at process start.
void convtrace_begin_quarantine(void);

#endif
