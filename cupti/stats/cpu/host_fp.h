#pragma once
/// @file host_fp.h
/// The host program's floating-point environment, put aside for a while.
///
/// PyTorch sets flush-to-zero on request and numeric codes change rounding; our sums need round to
/// nearest with subnormals. Only the control register of vector arithmetic matters: x87 is not
/// used.

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace convtrace::stats {

/// Default environment for the life of this object; control bits and exception flags are restored.
class DefaultFloatingPoint {
 public:
#if defined(__x86_64__)
  DefaultFloatingPoint() : saved_(_mm_getcsr()) { set(kDefault); }
  ~DefaultFloatingPoint() { set(saved_); }
#elif defined(__aarch64__)
  DefaultFloatingPoint() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    set(0);
  }
  ~DefaultFloatingPoint() { set(saved_); }
#endif
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kDefault = 0x1F80;  // all exceptions masked, to nearest, no FTZ, no DAZ
  static void set(unsigned value) {
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(value);
    __asm__ volatile("" ::: "memory");
  }
  unsigned saved_;
#elif defined(__aarch64__)
  static void set(uint64_t value) { __asm__ volatile("msr fpcr, %0" ::"r"(value) : "memory"); }
  uint64_t saved_ = 0;
#endif
};

}  // namespace convtrace::stats
