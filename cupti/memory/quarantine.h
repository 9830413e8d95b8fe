#pragma once
/// @file quarantine.h
/// CONVTRACE_POISON and CONVTRACE_QUARANTINE for memory of the driver.
///
/// Quarantine: memory that the program passes to cuMemFree stays allocated for a while, so that no
///             other allocation gets its address. The driver's cuMemFree waits for the device, and
///             so does this function, so a program that relies on the wait sees no difference. Only
///             memory of cuMemAlloc is held, at most 1/16 of the device, and only while 1/8 of the
///             device is free. All of it is freed before a call that reports a lack of memory or the
///             amount of free memory, begins a capture, or ends a context.
///
/// Poison: new memory holds kFreshPattern until it is written, and memory in quarantine holds 0xFF.
///         Memory of pools is filled by work on the stream that allocates it and again, before the
///         free, on the stream that frees it: no other work may use it outside of these two points.
///
/// Never touched: managed and imported memory, mappings, memory whose handle another process has,
/// and memory whose allocation was not seen. Before an allocation is touched the driver is asked
/// for its identity, so another allocation at the same address is not mistaken for it.
///
/// Place:    interceptor.cpp calls it for the preload library's wrappers of these functions.
/// Threads:  any, in calls of the program; never in a CUPTI callback, except for context_ended().
///           No lock is held during a call of the driver.
/// Errors:   in doubt memory is not filled, and freed at once. After a capture has begun no memory
///           is held any more, because waiting for the device while another thread captures may
///           invalidate its capture.
/// Source:   CUDA Programming Guide, "Stream Ordered Memory Allocator" (cuMemFree synchronizes
///           across all executing streams); cuPointerGetAttributes.

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <unordered_map>

#include "cupti/driver/api.h"
#include "format/base/mutex.h"

namespace convtrace::cupti {

/// A NaN in floats of 16, 32 and 64 bits that no processor produces, and an unlikely integer of any
/// width. The preload library fills CPU tensors with the same pattern
/// (interposer/preload/poison.h).
inline constexpr uint32_t kFreshPattern = 0x7FFDFFD5;

class Quarantine {
 public:
  /// @param driver  outlives this.
  Quarantine(const DriverApi& driver, bool poison, bool quarantine);

  /// @return whether the driver has all functions that are needed; false: no memory is filled or held.
  [[nodiscard]] bool possible() const noexcept { return possible_; }
  [[nodiscard]] bool poisons() const noexcept { return possible_ && poison_; }

  /// cuMemAlloc has returned memory in the current context. @param fill  whether to fill it; false
  /// while anything is captured.
  void given(uint64_t address, uint64_t bytes, bool fill);
  /// A pool has returned memory. @param stream  on which convtrace may launch if @param fill is
  /// true.
  void given_in_order(uint64_t address, uint64_t bytes, CUstream stream, bool fill);
  /// Pool memory is about to be freed on a stream.
  void taken_in_order(uint64_t address, CUstream stream, bool fill);
  /// Another process gets a handle of the memory.
  void shared(uint64_t address);

  /// Memory of any kind was allocated: frees all held memory if the device has little left.
  void grew();

  enum class Free : uint8_t {
    kCall,   ///< the caller must call the driver's function
    kHeld,   ///< the caller must not call it: the memory is held
    kTwice,  ///< the caller must not call it: the memory was freed before
  };
  /// Called in place of cuMemFree. @param freed  called if the memory is held, before it can be
  /// freed.
  Free free(uint64_t address, const std::function<void()>& freed);

  /// Frees all memory that is held. @return whether there was any.
  bool give_back() noexcept;
  /// give_back(), and no memory is held from now on. @return whether any could have been held
  /// before.
  bool end() noexcept;

  /// Forgets the memory of a context that has ended. Makes no call to the driver.
  void context_ended(CUcontext context);

 private:
  struct Known {
    uint64_t bytes = 0;
    uint64_t id = 0;  ///< from the driver, unique in the process
    CUcontext context = nullptr;
    bool in_order = false;
  };
  struct Held {
    uint64_t address = 0;
    uint64_t bytes = 0;
    CUcontext context = nullptr;
  };
  static constexpr size_t kMostKnown = size_t{1} << 20;
  static constexpr size_t kMostHeld = 4096;

  /// @return the driver's id of the device memory that begins at `address` on this device; 0: there
  /// is none.
  [[nodiscard]] uint64_t identity(uint64_t address) const;
  [[nodiscard]] CUcontext current_context() const;
  [[nodiscard]] bool know(uint64_t address, uint64_t bytes, bool in_order);
  [[nodiscard]] bool take_known(uint64_t address, Known& known);
  [[nodiscard]] uint64_t most_held() const;
  CUstream own_stream(CUcontext context);
  void fill_fresh(uint64_t address, uint64_t bytes, CUstream stream) const;
  void free_all(std::list<Held>& blocks) noexcept;

  const DriverApi& driver_;
  const bool poison_;
  const bool possible_;
  std::atomic<bool> holds_;       ///< memory may be held
  std::atomic<bool> any_{false};  ///< some memory is held
  Mutex mutex_;
  std::unordered_map<uint64_t, Known> known_ CONVTRACE_GUARDED_BY(mutex_);  ///< by address
  std::list<Held> held_ CONVTRACE_GUARDED_BY(mutex_);                       ///< oldest first
  uint64_t held_bytes_ CONVTRACE_GUARDED_BY(mutex_) = 0;
  /// Streams of convtrace, on which memory is filled.
  std::map<CUcontext, CUstream> streams_ CONVTRACE_GUARDED_BY(mutex_);
};

}  // namespace convtrace::cupti
