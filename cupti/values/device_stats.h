#pragma once
/// @file device_stats.h
/// Statistics that are computed on the device of the tensor: kernels run on the producer's stream,
/// and the host polls a ring in host memory for their results.
///
/// Threads:  submit() on any thread; collect() on any, one at a time. Contexts are prepared on a
///           helper thread, never in a callback.
/// Errors:   SampleOutcome. After a CUDA error of convtrace in a context every request there gets
///           kGpuWorkOff, and one log line has the reason.
/// Source:   docs/gpu-double.md "The rules".

#include <cuda.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cupti/driver/api.h"
#include "cupti/values/context_stats.h"
#include "format/base/mutex.h"
#include "format/model/event_sink.h"

namespace convtrace::cupti {

class DeviceStats {
 public:
  /// @param api, @param sink, @param values outlive this.
  /// @param most_samples  the largest number that any request asks for.
  /// @param values  null: no values are stored. @param value_bytes  as InterceptorOptions.
  /// Makes no CUDA call.
  DeviceStats(const DriverApi& api, format::EventSink& sink, uint32_t most_samples,
              ValueSink* values = nullptr, uint64_t value_bytes = 0);
  ~DeviceStats();
  DeviceStats(const DeviceStats&) = delete;
  DeviceStats& operator=(const DeviceStats&) = delete;

  /// @return whether the driver has to compile the kernels for a GPU of that compute capability,
  /// because their machine code is for older ones. That takes about 20 s on one CPU core.
  [[nodiscard]] static bool compiles_for(int major, int minor) noexcept;

  /// Queues the preparation of a context (kernel, ring, arenas) on the helper thread and returns at
  /// once. Idempotent.
  void prepare(CUcontext context) noexcept;
  /// Says whether forget() will be called before each context ends; false until it is called.
  void follow_context_ends(bool told) noexcept;
  /// The context is ending: drops its handles and makes no call on it. Results that the device has
  /// not finished are lost, and counted.
  void forget(CUcontext context) noexcept;
  /// The contexts that this thread has forgotten are destroyed, so no device writes their memory
  /// any more. Frees it as soon as no thread uses it.
  void forgotten_ended() noexcept;

  /// Launches statistics for `batch` on `stream` of the current context `context`, behind the work
  /// that the stream holds now. The caller has checked that the stream may be used: it is not
  /// captured, and it produced the memory.
  /// @param patience_ns  if not 0: prepares the context first and waits at most so long, once for
  /// each context, so that a driver that is busy for longer delays the program once only.
  /// @return kSampled, or why the batch gives no results.
  format::SampleOutcome submit(CUcontext context, std::span<const DeviceRequest> batch,
                               CUstream stream, uint64_t patience_ns = 0,
                               Results results = Results::kSoon) noexcept;

  /// @return whether values wait for fold_waiting().
  [[nodiscard]] bool has_waiting(CUcontext context) const;
  /// Counts what waits in any context as lost, since no launch will follow.
  void lose_waiting() noexcept;
  /// Launches what completes them. The caller has checked that the default stream of this context,
  /// which is current, may be used.
  void fold_waiting(CUcontext context) noexcept;

  /// @return null for a context that is not prepared, or has ended.
  [[nodiscard]] std::shared_ptr<ContextStats> find(CUcontext context) const;

  /// Emits finished results to the sink. @return the number of results and values that are not
  /// finished.
  /// @param[in,out] room  the most results to emit; reduced by those that were emitted. If 0 is
  /// left, more may be ready.
  uint64_t collect(uint64_t& room) noexcept;

  /// @return the number of values that are on their way from devices.
  [[nodiscard]] uint64_t values_under_way() const;

  /// Called after the last collect(): memory that the driver owns is not read any more.
  void let_go_of_borrowed() noexcept;

  /// Ends the helper thread: waits at most `timeout_ns` for the driver call that it may be in.
  void stop(uint64_t timeout_ns) noexcept;

 private:
  using Shared = std::shared_ptr<ContextStats>;

  [[nodiscard]] Shared prepared(CUcontext context) noexcept;
  void prepare_again(const Shared& context) noexcept;
  void await(ContextStats& context, uint64_t timeout_ns) noexcept;
  static void* main(void* self) noexcept;
  void serve();
  /// @param lock  holds helper_mutex_ and is released meanwhile; the analysis knows it by another
  /// name.
  void prepare_next(Lock<Mutex>& lock) CONVTRACE_REQUIRES(helper_mutex_) CONVTRACE_NOT_ANALYZED;
  void pump_values(Lock<Mutex>& lock) CONVTRACE_REQUIRES(helper_mutex_) CONVTRACE_NOT_ANALYZED;
  bool pump_all() noexcept;
  [[nodiscard]] std::vector<Shared> all() const;
  void report(const ContextStats::Failure& failure, const char* effect) noexcept;

  const DriverApi& driver_;
  format::EventSink& sink_;
  const uint32_t most_samples_;
  ValueSink* const values_;
  const uint64_t value_bytes_;
  std::atomic<bool> ends_are_told_{false};

  mutable SharedMutex contexts_mutex_;
  std::map<CUcontext, Shared> contexts_ CONVTRACE_GUARDED_BY(contexts_mutex_);
  /// Contexts that were forgotten. Their rings stay mapped, because a device may write until the
  /// context is destroyed; if that is not reported, they stay for good.
  struct Forgotten {
    Shared context;
    pthread_t by;
  };
  std::vector<Forgotten> forgotten_ CONVTRACE_GUARDED_BY(contexts_mutex_);

  Mutex helper_mutex_;
  std::condition_variable_any helper_wakes_, context_settles_;
  std::deque<Shared> to_prepare_ CONVTRACE_GUARDED_BY(helper_mutex_);
  pthread_t helper_{};
  bool helper_started_ CONVTRACE_GUARDED_BY(helper_mutex_) = false;
  bool helper_idle_ CONVTRACE_GUARDED_BY(helper_mutex_) = true;
  bool pump_wanted_ CONVTRACE_GUARDED_BY(helper_mutex_) = false;
  std::atomic<bool> stopping_{false};
};

}  // namespace convtrace::cupti
