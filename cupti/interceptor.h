#pragma once
/// @file interceptor.h
/// Everything CUDA behind one door: finding the driver and CUPTI, callbacks, the launch gate,
/// statistics on the device. No CUDA type appears here, so that nothing outside cupti/ needs its
/// headers.
///
/// Place:    interposer/core owns one; the stub's wrappers reach the launch functions through the
///           hooks table.
/// Threads:  start and stop from one thread; everything else from any thread.
/// Errors:   a part that is missing (no CUPTI, another subscriber) is reported once, as a log line
///           and a Diagnostic, and the others go on. The launch functions always make the real call
///           exactly once and return its result.
/// Source:   docs/adr/0003-observe-in-callbacks-act-in-the-gate.md.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cupti/abi/hooks_v1.h"
#include "cupti/gate/options.h"
#include "cupti/stats/tile/tensor_view.h"
#include "cupti/values/request.h"

namespace convtrace::cupti {

class Interceptor {
 public:
  /// Finds what is loaded (RTLD_NOLOAD first) and subscribes. Makes no CUDA call: it may run inside
  /// cuInit.
  explicit Interceptor(InterceptorOptions options);
  ~Interceptor();
  Interceptor(const Interceptor&) = delete;
  Interceptor& operator=(const Interceptor&) = delete;

  /// The gate: a launch function of the driver was called with `params`; see hooks_v1.h.
  /// @return the result of `real`, which is called exactly once.
  int launch(convtrace_launch_call call, bool per_thread, const void* params,
             convtrace_launch_fn real) noexcept;
  /// A graph was recorded, made or changed: see hooks_v1.h.
  void graph_call(convtrace_graph_call call, void* exec, void* object, const void* params) noexcept;

  /// The driver's memory is freed, or something else happens to it: see hooks_v1.h.
  int free_memory(convtrace_cuMemFree_fn real, uint64_t address) noexcept;
  int memory_call(convtrace_memory_call call, uint64_t address, uint64_t bytes,
                  void* stream) noexcept;
  /// Frees what is kept of freed memory, whatever the state of tracing. @return whether there was
  /// any.
  bool give_back() noexcept;

  /// Ends the subscription to CUPTI for good, if there is one: somebody else wants it. Launches are
  /// recorded on.
  void give_cupti_away() noexcept;

  /// Queues statistics of device tensors behind what `stream` holds now; each comes out of the sink
  /// as a TensorStats once the device is done. One batch, launched before this returns. All of it
  /// lies on one device, which need not be the current one. A tensor that another stream may have
  /// written meanwhile is a Loss in place of its value. The first call in a context may wait a
  /// second for its preparation.
  /// @return kSampled, or why nothing was queued (then nothing of the batch was; the caller counts
  /// it).
  format::SampleOutcome submit(std::span<DeviceRequest> batch, uint64_t stream) noexcept;

  /// @param event with its device, and the generation of its block. @param stream as submit().
  /// @return whether the tensor holds its value: what reads it in that stream, or here if it is the
  /// host's, comes behind all that is known to write it.
  [[nodiscard]] bool is_settled(const format::TensorStats& event, uint64_t stream) noexcept;

  /// Emits what the device has finished, kMaxCollected results at most: 600 kB, which the queue
  /// behind the sink has room for. Called by the writer thread.
  /// @return whether there may be more.
  bool collect() noexcept;
  static constexpr uint64_t kMaxCollected = 256;

  /// Facts for META: "version.driver", "version.cupti", "device.0.name", ...; grows as contexts
  /// appear.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> facts() const;

  /// The rule book has other rules: kernels seen before are matched again. Graphs keep what they
  /// were made with.
  void rules_changed() noexcept;

  /// Ends observation: unsubscribes, waits at most `deadline_ns` for results under way. The gate
  /// passes calls through.
  void stop(uint64_t deadline_ns) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::cupti
