#pragma once
/// @file thread_context.h
/// The engine's data of each native thread: its position in the program, and its two rings.
///
/// Place:     event_queue.h and memory_journal.h fill and drain the rings; the observer writes
///            `scope` without a call.
/// Ownership: contexts are never freed. The context of a thread that ended goes to a new thread,
///            with the contents of its rings, so slots stay valid as long as the process.
/// Threads:   this_thread() from any; for_each_thread() too, since contexts are only ever added.

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

/// @return the calling thread's context, made at first use; null if there is no memory.
ThreadContext* this_thread() noexcept;

/// The newest context; follow `next` to the others.
ThreadContext* first_thread() noexcept;

/// For a fork child: the calling thread has another id and the other threads are gone. Drops the
/// contents of their rings.
void reset_threads_after_fork() noexcept;

}  // namespace convtrace::engine
