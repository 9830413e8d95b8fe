#pragma once
/// @file mutex.h
/// Mutexes that clang's analysis checks: which mutex guards a member, which function needs it
/// locked.
///
/// Place:    used instead of std::mutex and its locks, which libstdc++ does not annotate. Under
///           other compilers than clang the annotations are empty.
/// Source:   clang's "Thread Safety Analysis".

#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define CONVTRACE_ANNOTATE(attribute) __attribute__((attribute))
#else
#define CONVTRACE_ANNOTATE(attribute)
#endif

/// On a member: it is accessed only while the mutex is held.
#define CONVTRACE_GUARDED_BY(mutex) CONVTRACE_ANNOTATE(guarded_by(mutex))
/// On a function: its caller holds the mutex; in the second form at least for reading.
#define CONVTRACE_REQUIRES(mutex) CONVTRACE_ANNOTATE(requires_capability(mutex))
#define CONVTRACE_REQUIRES_SHARED(mutex) CONVTRACE_ANNOTATE(requires_shared_capability(mutex))
/// On a function that is correct for a reason that the analysis cannot see; a comment gives the
/// reason.
#define CONVTRACE_NOT_ANALYZED CONVTRACE_ANNOTATE(no_thread_safety_analysis)

namespace convtrace {

/// std::mutex or std::shared_mutex.
template <typename Native>
class CONVTRACE_ANNOTATE(capability("mutex")) AnnotatedMutex {
 public:
  constexpr AnnotatedMutex() = default;
  void lock() CONVTRACE_ANNOTATE(acquire_capability()) { native_.lock(); }
  [[nodiscard]] bool try_lock() CONVTRACE_ANNOTATE(try_acquire_capability(true)) {
    return native_.try_lock();
  }
  void unlock() CONVTRACE_ANNOTATE(release_capability()) { native_.unlock(); }
  void lock_shared() CONVTRACE_ANNOTATE(acquire_shared_capability()) { native_.lock_shared(); }
  void unlock_shared() CONVTRACE_ANNOTATE(release_shared_capability()) { native_.unlock_shared(); }

  /// Tells the analysis that the mutex is held, in a function that is called indirectly.
  void is_held() const CONVTRACE_ANNOTATE(assert_capability(this)) {}

 private:
  Native native_;
};
using Mutex = AnnotatedMutex<std::mutex>;
using SharedMutex = AnnotatedMutex<std::shared_mutex>;

/// Holds a mutex for a scope. It may be unlocked and locked again in between, also by a
/// std::condition_variable_any.
template <typename M>
class CONVTRACE_ANNOTATE(scoped_lockable) Lock {
 public:
  explicit Lock(M& mutex) CONVTRACE_ANNOTATE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  /// Takes over a mutex that try_lock() has locked.
  Lock(M& mutex, std::adopt_lock_t /*held*/) CONVTRACE_REQUIRES(mutex) : mutex_(mutex) {}
  ~Lock() CONVTRACE_ANNOTATE(release_capability()) {
    if (held_) mutex_.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() CONVTRACE_ANNOTATE(acquire_capability()) {
    mutex_.lock();
    held_ = true;
  }
  void unlock() CONVTRACE_ANNOTATE(release_capability()) {
    held_ = false;
    mutex_.unlock();
  }

 private:
  M& mutex_;
  bool held_ = true;
};

/// Shares a mutex with other readers for a scope.
class CONVTRACE_ANNOTATE(scoped_lockable) SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex) CONVTRACE_ANNOTATE(acquire_shared_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~SharedLock() CONVTRACE_ANNOTATE(release_generic_capability()) { mutex_.unlock_shared(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace convtrace
