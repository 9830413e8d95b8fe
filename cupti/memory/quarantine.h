#pragma once
/// @file quarantine.h
/// CONVTRACE_POISON and CONVTRACE_QUARANTINE on the driver's memory.
///
/// Quarantine: what cuMemFree is given stays allocated for a while, so that its address is nobody
/// else's. The driver's cuMemFree waits for the device; so does this, and a program that counts on
/// that sees no difference. Held is memory of cuMemAlloc alone, at most 1/16 of the device, and
/// only while 1/8 of the device is free; all goes back before a program is told that there is too
/// little, is told how much there is, begins a capture or ends a context.
///
/// Poison: fresh memory holds kFreshPattern until it is written, in quarantine 0xFF. Memory of
/// pools is filled by work of the stream that is given it, and again in front of the free, by the
/// stream that frees it: nobody may use it outside of what lies between the two.
///
/// Never touched: managed and imported memory, mappings, what another process was given a handle
/// of, memory whose allocation was not seen. The driver is asked for the identity of each
/// allocation before it is touched, so no other that lies at its address can be.
///
/// Place:    called by interceptor.h for the preload library's wrappers of these functions.
/// Threads:  any, ordinary code of the program's calls; never a CUPTI callback, but for
///           context_ended(). No lock is held over a call of the driver.
/// Errors:   in doubt memory is not filled, and freed at once. Once a capture was begun nothing is
///           held any more: to wait for the device while another thread captures may break its
///           capture.
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

/// A NaN in floats of 16, 32 and 64 bits that no processor makes, and no likely integer of any
/// width. The preload library fills CPU tensors with the same (interposer/preload/poison.h).
inline constexpr uint32_t kFreshPattern = 0x7FFDFFD5;

class Quarantine {
 public:
  /// @param driver  outlives it.
  Quarantine(const DriverApi& driver, bool poison, bool quarantine);

  /// Whether the driver has all that is needed; false: nothing is filled or held.
  [[nodiscard]] bool possible() const noexcept { return possible_; }
  [[nodiscard]] bool poisons() const noexcept { return possible_ && poison_; }

  /// cuMemAlloc has given memory in the current context. @param fill  nothing is being captured.
  void given(uint64_t address, uint64_t bytes, bool fill);
  /// A pool has given memory. @param stream  ours may work on it; @param fill  whether it is so.
  void given_in_order(uint64_t address, uint64_t bytes, CUstream stream, bool fill);
  /// It is about to be freed by a stream.
  void taken_in_order(uint64_t address, CUstream stream, bool fill);
  /// Another process is given a handle of the memory.
  void shared(uint64_t address);

  /// Memory was given, whatever its kind: what is held goes back if the device has little left.
  void grew();

  enum class Free : uint8_t {
    kCall,   ///< the driver's function is to be called
    kHeld,   ///< it must not be: the memory is held
    kTwice,  ///< it must not be: the memory is freed already
  };
  /// cuMemFree is called. @param freed  called if the memory is held, before it may go back.
  Free free(uint64_t address, const std::function<void()>& freed);

  /// Frees what is held. @return whether there was anything.
  bool give_back() noexcept;
  /// The same, and nothing is held any more. @return whether it was so that something might have
  /// been.
  bool end() noexcept;

  /// What lay in a context went with it. Makes no call.
  void context_ended(CUcontext context);

 private:
  struct Known {
    uint64_t bytes = 0;
    uint64_t id = 0;  ///< as the driver says, of no other allocation of the process
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

  /// @return the id of the device memory that begins there, of this device; 0: it is no such.
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
  std::atomic<bool> holds_;       ///< whether anything may be held
  std::atomic<bool> any_{false};  ///< whether anything is
  Mutex mutex_;
  std::unordered_map<uint64_t, Known> known_ CONVTRACE_GUARDED_BY(mutex_);  ///< by address
  std::list<Held> held_ CONVTRACE_GUARDED_BY(mutex_);                       ///< the oldest first
  uint64_t held_bytes_ CONVTRACE_GUARDED_BY(mutex_) = 0;
  std::map<CUcontext, CUstream> streams_ CONVTRACE_GUARDED_BY(mutex_);  ///< ours, to fill in
};

}  // namespace convtrace::cupti
