#pragma once
/// @file background_thread.h
/// Starts threads of convtrace inside a host program.
///
/// Source:   signals of the host belong to the host's threads
///           (https://bugs.kde.org/show_bug.cgi?id=378494).

#include <pthread.h>
#include <signal.h>

namespace convtrace {

/// Starts a thread that blocks all signals. @return false if no thread can be created.
[[nodiscard]] inline bool start_background_thread(pthread_t& thread, void* (*main)(void*),
                                                  void* argument) noexcept {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool made = pthread_create(&thread, nullptr, main, argument) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

}  // namespace convtrace
