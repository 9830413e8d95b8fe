#pragma once
/// @file subscriber.h
/// Holds the process's one CUPTI subscription and turns its callbacks into virtual calls.
///
/// Place:    owned by interceptor.cpp.
/// Threads:  open from one thread, then close from any; receivers are called from every thread that
/// uses CUDA.
/// Errors:   a subscription that cannot be had is a Status and a sentence; nothing is retried.
/// Source:   cupti_callbacks.h; CUPTI allows one subscriber a process (also under a debugger or
///           profiler).

#include <cupti.h>

#include <atomic>
#include <string>

#include "cupti/calls/callback_table.h"
#include "cupti/driver/api.h"
#include "format/base/status.h"

namespace convtrace::cupti {

/// Called inside CUDA calls of the host: copy data, make no CUDA call, never block.
class CallbackReceiver {
 public:
  virtual ~CallbackReceiver() = default;
  /// A call of callback_table.h, at its entry and at its exit.
  virtual void on_driver_call(const CallbackEntry& entry,
                              const CUpti_CallbackData& call) noexcept = 0;
  /// The context is about to be destroyed. The driver holds locks.
  virtual void on_context_end(CUcontext context) noexcept = 0;
  /// CUPTI met a fatal error and has ended itself: no callback will follow.
  virtual void on_cupti_failure(const CUpti_StateData& state) noexcept = 0;
};

class Subscriber {
 public:
  Subscriber() = default;
  ~Subscriber() { close(); }
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;

  /// Subscribes and enables every callback of callback_table.h singly: whole domains cost a
  /// callback for each of hundreds of calls.
  /// @param api, @param receiver outlive this.
  /// @param[out] holder who has the subscription instead, "" if CUPTI does not say.
  /// @return kCuptiError (detail: CUptiResult), also where not one callback can be enabled.
  [[nodiscard]] Status open(const CuptiApi& api, CallbackReceiver& receiver, std::string& holder);

  /// Ends the subscription. @return whether there was one.
  bool close() noexcept;

  /// @return callbacks that CUPTI knows and did not enable: what they would tell is not seen.
  [[nodiscard]] uint32_t refused() const noexcept { return refused_; }

 private:
  static void callback(void* receiver, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                       const void* data) noexcept;
  [[nodiscard]] CUptiResult subscribe(CUpti_SubscriberHandle& handle, CallbackReceiver& receiver,
                                      std::string& holder) const;
  [[nodiscard]] Status enable_all(CUpti_SubscriberHandle handle);

  const CuptiApi* api_ = nullptr;
  std::atomic<CUpti_SubscriberHandle> handle_{nullptr};
  uint32_t refused_ = 0;
};

}  // namespace convtrace::cupti
