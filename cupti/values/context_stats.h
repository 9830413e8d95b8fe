#pragma once
/// @file context_stats.h
/// Statistics in one CUDA context: its kernels, its scratch memory and its results.
///
/// The scratch memory consists of a fixed number of lanes. A lane belongs to one stream at a time, so
/// the stream orders the launches that share it, and to one thread while it launches. Another stream
/// gets the lane when all results of the former one are out.
///
/// The statistics kernel leaves tiles in the lane's log, and a launch of the fold kernel makes results
/// of them. The log of the default stream, which no program can destroy, may hold up to kMostWaiting
/// values of several batches; other streams' batches are folded at once.
///
/// A GPU queues about 1024 launches and blocks the next one. At most half of these are convtrace's,
/// because a program may queue all its launches behind work that waits for the host.
///
/// Place:    owned by device_stats.cpp.
/// Threads:  prepare() on the helper thread; submit() on any; collect() and forget() on any, one at
///           a time.
/// Errors:   SampleOutcome. After a CUDA error of convtrace no more work is launched in this
///           context; one that may pass (cuda_error.h) is borne kMostRefusals times before anything
///           was prepared.

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "cupti/driver/api.h"
#include "cupti/stats/batch.h"
#include "cupti/values/device_values.h"
#include "cupti/values/result_ring.h"
#include "format/base/mutex.h"

namespace convtrace::cupti {

class ContextStats {
 public:
  /// Parameters as DeviceStats. @param ends_are_told  whether forget() will be called before the
  /// context ends; outlives this.
  ContextStats(const DriverApi& driver, CUcontext context, format::EventSink& sink,
               uint32_t most_samples, ValueSink* values, uint64_t value_bytes,
               const std::atomic<bool>& ends_are_told)
      : driver_(driver),
        context_(context),
        ends_are_told_(ends_are_told),
        most_samples_(most_samples),
        value_bytes_(value_bytes),
        values_(driver, values, sink) {}

  /// The CUDA call that failed and its code; CUDA_SUCCESS: none failed.
  struct Failure {
    CUresult result = CUDA_SUCCESS;
    const char* call = nullptr;
    uint32_t times = 1;
  };

  static constexpr uint32_t kMostRefusals = 5;

  /// Loads the kernel and allocates memory. @param stopping  polled between calls to the driver.
  [[nodiscard]] Failure prepare(const std::atomic<bool>& stopping) noexcept;
  /// @return whether prepare() has ended, successfully or not.
  [[nodiscard]] bool is_settled() const noexcept { return phase() != Phase::kPreparing; }
  /// @return whether prepare() is to be called again, since the cause of its failure may be gone.
  [[nodiscard]] bool is_refused() const noexcept { return phase() == Phase::kRefused; }
  /// @return true for the one caller that has prepare() called again.
  [[nodiscard]] bool begin_again() noexcept {
    Phase expected = Phase::kRefused;
    if (!phase_.compare_exchange_strong(expected, Phase::kPreparing)) return false;
    waited_.store(false);  // a refusal comes at once, so that nobody has waited long
    return true;
  }

  /// Marks the context as one that will not be prepared.
  void give_up() noexcept { phase_.store(Phase::kOver); }
  /// @return true for the first caller, who may wait for the preparation; false for all others.
  [[nodiscard]] bool may_wait() noexcept { return !waited_.exchange(true); }

  /// As DeviceStats::submit. @param[out] failure  set once, when a launch of convtrace has failed.
  [[nodiscard]] format::SampleOutcome submit(std::span<const DeviceRequest> batch, CUstream stream,
                                             Results results, Failure& failure) noexcept;

  /// @return whether values wait for fold_waiting().
  [[nodiscard]] bool has_waiting() const noexcept { return waiting_.load() != 0; }
  /// Launches on the default stream, which the caller has checked, in the current context. @param[out]
  /// failure  as submit().
  void fold_waiting(Failure& failure) noexcept;

  /// Counts the waiting values as lost, since no launch will follow. A thread that launches meanwhile
  /// does so itself.
  void lose_waiting() noexcept;

  /// As ResultRing::collect. @return the number of results that the device has not finished.
  uint64_t collect(format::EventSink& sink, uint64_t& room) noexcept;

  [[nodiscard]] uint64_t values_under_way() const noexcept { return values_.under_way(); }
  /// As DeviceValues::pump().
  bool pump_values() noexcept;

  /// Stops reading host memory that the driver owns, since it may be unmapped without notice.
  /// @return the number of results that are lost by that.
  uint64_t let_go_of_borrowed() noexcept;

  /// The context ends: makes no further call on it. @return the number of results that are lost by
  /// that.
  uint64_t forget(format::EventSink& sink) noexcept;

 private:
  enum class Phase : uint8_t { kPreparing, kRefused, kReady, kOver };

  struct Lane {
    uint64_t stream_id = 0;
    bool used = false;
    bool busy = false;  ///< a thread launches in it
  };
  static constexpr uint32_t kDefault = 0;  ///< the lane of the default stream, and of no other
  static constexpr uint32_t kMostWaiting = 16;

  /// The resources that a batch was given.
  struct Grant {
    ResultRing::Ticket first;
    uint32_t launches = 0;  ///< launched so far
  };

  [[nodiscard]] Phase phase() const noexcept { return phase_.load(std::memory_order_acquire); }
  Failure load_kernels() noexcept;
  Failure choose_variant() noexcept;
  Failure register_ring() noexcept;
  Failure make_lanes() noexcept;
  bool claim(std::span<const DeviceRequest> batch, CUstream stream, uint64_t stream_id,
             Grant& grant) noexcept;
  Lane* lane_for(CUstream stream, uint64_t stream_id) noexcept CONVTRACE_REQUIRES(claim_mutex_);
  void release(uint32_t lane) noexcept CONVTRACE_REQUIRES(claim_mutex_);
  void end_work(CUresult result, Failure& failure) noexcept;
  void stage_values(Grant& grant, size_t count, CUstream stream) noexcept;
  CUresult launch_all(Grant& grant, size_t count, CUstream stream) noexcept;
  CUresult fold(uint32_t lane, CUstream stream, uint32_t& launches) noexcept;
  /// @tparam BatchType  FewBatch or ManyBatch, which lies on the stack.
  template <typename BatchType>
  [[gnu::noinline]] CUresult launch_as(Grant& grant, size_t count, CUstream stream) noexcept;
  CUresult launch(stats::BatchBuilder& builder, Grant& grant, CUstream stream) noexcept;
  CUresult warm_up(CUstream stream) noexcept;

  const DriverApi& driver_;
  const CUcontext context_;
  const std::atomic<bool>& ends_are_told_;
  std::atomic<Phase> phase_{Phase::kPreparing};
  std::atomic<bool> waited_{false};
  uint32_t refusals_ = 0;  ///< used by prepare()
  CUfunction kernel_ = nullptr;
  CUfunction fold_ = nullptr;    ///< makes results of a log
  CUfunction list_ = nullptr;    ///< puts the list of many tensors into a lane
  CUfunction gather_ = nullptr;  ///< copies a tensor in logical order
  stats::Variant variant_ = stats::Variant::kWide;
  const uint32_t most_samples_;
  CUdeviceptr lists_address_ = 0;  ///< a ManyBatch for each lane
  Mutex claim_mutex_;  ///< protects host data only; never held during a call to the driver
  std::array<Lane, ResultRing::kLanes> lanes_ CONVTRACE_GUARDED_BY(claim_mutex_);
  /// By lane; used by the thread that keeps the lane busy.
  std::array<stats::Log, ResultRing::kLanes> logs_;
  /// First waiting ticket of the default stream's lane; used by the thread that keeps that lane busy.
  ResultRing::Ticket waiting_from_;
  std::atomic<uint32_t> waiting_{0};
  const uint64_t value_bytes_;
  DeviceValues values_;
  Mutex collect_mutex_;
  ResultRing ring_;
};

}  // namespace convtrace::cupti
