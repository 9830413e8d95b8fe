#pragma once
/// @file gate.h
/// Processes a launch that passes a wrapper of the driver's launch functions: decodes it, calls the
/// driver, and queues statistics before and after that call.
///
/// Place:    interceptor.cpp calls it for each wrapper; CUPTI callbacks report to it what they see
///           of the same call.
/// Threads:  any. A launch inside a launch (convtrace's statistics, or a driver function that calls
///           another one) is passed through.
/// Errors:   the real call is made exactly once, whatever error occurs in convtrace.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <type_traits>

#include "cupti/calls/launch_decoder.h"
#include "cupti/driver/own_calls.h"
#include "cupti/gate/cuda_state.h"
#include "cupti/gate/launch_capture.h"

namespace convtrace::cupti {

class Gate {
 public:
  explicit Gate(CudaState& state) : state_(state) {}

  /// @param real makes the driver's call and returns its CUresult.
  template <typename Real>
  int around(const LaunchInfo& launch, bool per_thread, Real&& real) noexcept {
    if (!state_.active.load(std::memory_order_acquire) || busy()) return real();
    const WorkClock::Call call(state_.work);
    Pass pass;
    before(launch, per_thread, pass);
    pass_ = &pass;
    const int result = real();
    pass_ = nullptr;
    after(result, pass);
    return result;
  }

  /// The same for a call that makes several launches, each in the context of its own stream.
  template <typename Real>
  int around_each(std::span<const LaunchInfo> launches, Real&& real) noexcept {
    if (!state_.active.load(std::memory_order_acquire) || busy()) return real();
    const WorkClock::Call call(state_.work);
    const std::unique_ptr<Pass[]> passes(new (std::nothrow) Pass[launches.size()]);
    if (passes == nullptr || launches.empty()) return real();
    for (size_t i = launches.size(); i-- > 0;) {
      passes[i].next = i + 1 < launches.size() ? &passes[i + 1] : nullptr;
      passes[i].by_stream = true;
      before(launches[i], false, passes[i]);
    }
    pass_ = passes.get();
    const int result = real();
    pass_ = nullptr;
    for (Pass* pass = passes.get(); pass != nullptr; pass = pass->next) after(result, *pass);
    return result;
  }

  /// @return whether the calling thread is inside around() with a launch of the program.
  [[nodiscard]] bool inside() const noexcept { return pass_ != nullptr; }

  /// @return whether CUPTI failed to report the last launch of the calling thread.
  [[nodiscard]] static bool cupti_is_silent() noexcept { return silent_ != 0; }

  /// Called when CUPTI reports the launch that the gate is processing; counts it if the two differ.
  void cross_check(const LaunchInfo& seen) noexcept;

  /// Starts or stops counting launches that CUPTI does not report. Started when CUPTI is
  /// subscribed.
  void expect_callbacks(bool expected) noexcept;
  /// @return the number of launches that CUPTI did not report, or reported with other parameters.
  [[nodiscard]] uint64_t disagreements() const noexcept { return disagreements_.load(); }

 private:
  /// A launch while the gate processes it.
  struct Pass {
    const LaunchInfo* launch = nullptr;  ///< null when before() failed: nothing is recorded
    format::Launch event;                ///< its operands lie in `storage`
    Position position;
    std::optional<LaunchCapture> values;  ///< records its operands; empty: no values are wanted
    std::shared_ptr<ExecutableGraph> graph;
    CUcontext context = nullptr;
    Pass* next = nullptr;  ///< the next launch of the same call
    /// Its context is that of its stream, which may not be the current one.
    bool by_stream = false;
    /// All reports of allocators were applied before its operands were looked up.
    bool memory_known = true;
    bool into_graph = false;  ///< recorded into a graph; it does not run now
    bool reported = false;    ///< CUPTI reported a launch
    bool confirmed = false;   ///< CUPTI reported the same launch

    [[nodiscard]] std::span<format::Operand> operands() noexcept {
      return {std::launder(reinterpret_cast<format::Operand*>(storage)), kMaxOperands};
    }
    /// Not initialised: most launches use little of these 8 KiB. They lie on the stack because a
    /// thread-local buffer would be static TLS of a library that is loaded late, or leak with its
    /// thread.
    alignas(format::Operand) std::byte storage[kMaxOperands * sizeof(format::Operand)];
  };
  static_assert(std::is_trivially_copyable_v<format::Operand>);

  [[nodiscard]] static bool busy() noexcept { return OwnCalls::active() || pass_ != nullptr; }
  void before(const LaunchInfo& launch, bool per_thread, Pass& pass) noexcept;
  void describe(const LaunchInfo& launch, bool per_thread, Pass& pass);
  void after(int result, Pass& pass) noexcept;
  [[nodiscard]] bool apply_memory_reports(bool all) const noexcept;
  void succeed(Pass& pass);
  void compare_with_cupti(const Pass& pass) noexcept;
  void note_failure(int result) noexcept;

  static inline thread_local Pass* pass_ = nullptr;

  CudaState& state_;
  std::atomic<bool> expect_callbacks_{false};
  /// Number of consecutive launches of this thread that CUPTI did not report.
  static inline thread_local uint32_t silent_ = 0;
  std::atomic<uint64_t> disagreements_{0};
};

}  // namespace convtrace::cupti
