#pragma once
/// @file work_clock.h
/// Tells whether two reads of device memory have the same content because the program did nothing
/// to it in between.
///
/// The clock moves when a call of the program begins that puts work into a stream, frees memory, or
/// orders work. Work of another stream that was put there before the first read and is still
/// running does not move it: if an operand shows that it may write the block, neither read is made
/// (stream_uses.h); if nothing shows it, both reads race with it until a call orders it before the
/// second one, and that call moves the clock.
///
/// While such a call is under way it is unknown whether a read on another thread comes before or after
/// its work, so the clock has no time then.
///
/// Place:    launches are counted by the gate, everything else by the CUPTI callbacks;
///           interceptor.cpp asks.
/// Threads:  any.

#include <atomic>
#include <cstdint>

#include "cupti/driver/mutation.h"

namespace convtrace::cupti {

class WorkClock {
 public:
  /// A call of the program, from before it takes effect until it has returned.
  class Call {
   public:
    explicit Call(WorkClock& clock) noexcept : clock_(clock) { clock_.begin(); }
    ~Call() { clock_.end(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    WorkClock& clock_;
  };
  void begin() noexcept { word_.fetch_add(kBegun + 1); }
  void end() noexcept { word_.fetch_sub(1); }

  /// Memory may change without a call from now on.
  void stop() noexcept { stopped_.store(true); }

  /// @return the time; 0: there is none, and two reads may differ.
  [[nodiscard]] uint64_t now() const noexcept {
    const uint64_t word = word_.load();
    const bool under_way = (word & (kBegun - 1)) != 0 && !MUTATION(calls_under_way_ignored);
    return under_way || stopped_.load() ? 0 : word;
  }

 private:
  static constexpr uint64_t kBegun = uint64_t{1} << 16;
  /// Calls that have begun, and in the lower 16 bits those that have not ended.
  std::atomic<uint64_t> word_{kBegun};
  std::atomic<bool> stopped_{false};
};

}  // namespace convtrace::cupti
