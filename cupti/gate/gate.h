#pragma once
/// @file gate.h
/// What happens around a launch that goes through our wrapper of the driver's entry point:
/// the launch is read, the driver is called, and work of ours is queued before and after that call.
///
/// Place:    called by interceptor.cpp for each wrapper; told by the callbacks what CUPTI sees of
///           the same call.
/// Threads:  any. A launch made by a launch (our own statistics, or a driver function that calls
///           another) passes through.
/// Errors:   the real call is made exactly once, whatever happens to us.

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
    Pass pass;
    before(launch, per_thread, pass);
    pass_ = &pass;
    const int result = real();
    pass_ = nullptr;
    after(result, pass);
    return result;
  }

  /// The same for a call that makes several launches, each in the context of its stream.
  template <typename Real>
  int around_each(std::span<const LaunchInfo> launches, Real&& real) noexcept {
    if (!state_.active.load(std::memory_order_acquire) || busy()) return real();
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

  /// Whether the calling thread is inside around(), with the program's own launch.
  [[nodiscard]] bool inside() const noexcept { return pass_ != nullptr; }

  /// CUPTI reports the launch that is inside: it must be the same one.
  void cross_check(const LaunchInfo& seen) noexcept;

  /// CUPTI is subscribed: launches it does not report are counted from here on; or not so any more.
  void expect_callbacks(bool expected) noexcept;
  /// @return launches that passed here and that CUPTI did not report, or reported otherwise.
  [[nodiscard]] uint64_t disagreements() const noexcept { return disagreements_.load(); }

 private:
  /// One launch on its way through.
  struct Pass {
    const LaunchInfo* launch = nullptr;  ///< null when before() failed: nothing is recorded
    format::Launch event;                ///< its operands lie in `storage`
    Position position;
    std::optional<LaunchCapture> values;  ///< what is recorded of its operands
    std::shared_ptr<ExecutableGraph> graph;
    CUcontext context = nullptr;
    Pass* next = nullptr;      ///< of the same call
    bool by_stream = false;    ///< its context is that of its stream, not the current one
    bool memory_known = true;  ///< all that allocators have reported
    bool into_graph = false;   ///< recorded into a graph instead of run
    bool reported = false;     ///< CUPTI reported a launch
    bool confirmed = false;    ///< and it was the same

    [[nodiscard]] std::span<format::Operand> operands() noexcept {
      return {std::launder(reinterpret_cast<format::Operand*>(storage)), kMaxOperands};
    }
    /// Left uninitialised: 8 KiB that most launches use a little of. On the stack, since a
    /// thread-local buffer would be static TLS of a late-loaded library, or leak with its thread.
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
  /// Launches of this thread in a row of which CUPTI said nothing.
  static inline thread_local uint32_t silent_ = 0;
  std::atomic<uint64_t> disagreements_{0};
};

}  // namespace convtrace::cupti
