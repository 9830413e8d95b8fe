#pragma once
/// @file thread_context.h
/// What the engine keeps per native thread: where it is in the program, and its two rings.
///
/// Place:     event_queue.h and memory_journal.h fill and empty the rings; the observer writes
///            `scope` without a call.
/// Ownership: contexts are never freed. That of a thread that ended is given to a new one, rings
///            with what is still in them included, so slots stay valid as long as the process.
/// Threads:   this_thread() from any; for_each_thread() too (contexts are only ever added).

#include <atomic>
#include <cstdint>

#include "interposer/abi/observer_abi.h"
#include "interposer/core/runtime/byte_ring.h"

namespace convtrace::engine {

struct ThreadContext {
  convtrace_thread_scope scope{};
  uint32_t thread = 0;  ///< gettid() of the owner
  ByteRing events;      ///< mapped at the first event
  ByteRing reports;     ///< mapped at the first memory report
  std::atomic<bool> owned{true};
  ThreadContext* next = nullptr;  ///< immutable once listed
};

/// @return the calling thread's context, made at first use; null if memory is out.
ThreadContext* this_thread() noexcept;

/// Newest context; follow `next`.
ThreadContext* first_thread() noexcept;

/// In a fork child: the calling thread has another id now, and the other threads are gone. What
/// their rings hold is forgotten.
void reset_threads_after_fork() noexcept;

}  // namespace convtrace::engine
