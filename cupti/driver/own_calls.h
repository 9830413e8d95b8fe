#pragma once
/// @file own_calls.h
/// Marks the CUDA calls that convtrace itself makes, so that neither the gate nor a CUPTI callback
/// takes them for the program's.
///
/// Place:    around every call of DriverApi that CUPTI can see, on any thread.
/// Threads:  a mark belongs to its thread.

namespace convtrace::cupti {

class OwnCalls {
 public:
  OwnCalls() noexcept { ++depth_; }
  ~OwnCalls() { --depth_; }
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;

  [[nodiscard]] static bool active() noexcept { return depth_ != 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace convtrace::cupti
