#pragma once
/// @file subscriber.h
/// Holds the process's only CUPTI subscription and forwards its callbacks as virtual calls.
///
/// Place:    owned by interceptor.cpp.
/// Threads:  open() on one thread, then close() on any. Receivers are called on every thread that
///           uses CUDA.
/// Errors:   a refused subscription is a Status and a text; it is not tried again.
/// Source:   cupti_callbacks.h; CUPTI allows one subscriber a process (also under a debugger or
///           profiler).

#include <cupti.h>

#include <atomic>
#include <string>

#include "cupti/calls/callback_table.h"
#include "cupti/driver/api.h"
#include "format/base/status.h"

namespace convtrace::cupti {

/// Called inside CUDA calls of the host. An implementation copies data, makes no CUDA call and
/// never blocks.
class CallbackReceiver {
 public:
  virtual ~CallbackReceiver() = default;
  /// Called at the entry and at the exit of each call of callback_table.h.
  virtual void on_driver_call(const CallbackEntry& entry,
                              const CUpti_CallbackData& call) noexcept = 0;
  /// The context is about to be destroyed. The driver holds locks during this call.
  virtual void on_context_end(CUcontext context) noexcept = 0;
  /// CUPTI has ended after a fatal error: no callback will follow.
  virtual void on_cupti_failure(const CUpti_StateData& state) noexcept = 0;
};

class Subscriber {
 public:
  Subscriber() = default;
  ~Subscriber() { close(); }
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;

  /// Subscribes and enables the callbacks of callback_table.h one by one, because a whole domain
  /// would cost a callback for each of hundreds of calls.
  /// @param api, @param receiver outlive this.
  /// @param[out] holder  the tool that has the subscription; "" if CUPTI does not name it.
  /// @return kCuptiError (detail: CUptiResult), also if no callback at all can be enabled.
  [[nodiscard]] Status open(const CuptiApi& api, CallbackReceiver& receiver, std::string& holder);

  [[nodiscard]] bool is_open() const noexcept { return handle_.load() != nullptr; }
  /// Ends the subscription. @return whether there was one.
  bool close() noexcept;

  /// @return the number of callbacks that CUPTI has and refused to enable. Their events are
  /// missing.
  [[nodiscard]] uint32_t refused() const noexcept { return refused_; }
  /// @return whether every callback of the table is enabled. An older CUPTI lacks the newest ones, whose
  /// functions the driver may have.
  [[nodiscard]] bool sees_all() const noexcept { return sees_all_; }

 private:
  static void callback(void* receiver, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                       const void* data) noexcept;
  [[nodiscard]] CUptiResult subscribe(CUpti_SubscriberHandle& handle, CallbackReceiver& receiver,
                                      std::string& holder) const;
  [[nodiscard]] Status enable_all(CUpti_SubscriberHandle handle);

  const CuptiApi* api_ = nullptr;
  std::atomic<CUpti_SubscriberHandle> handle_{nullptr};
  uint32_t refused_ = 0;
  bool sees_all_ = false;
};

}  // namespace convtrace::cupti
