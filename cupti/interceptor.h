#pragma once
/// @file interceptor.h
/// The public interface of cupti/: the driver, CUPTI callbacks, the launch gate and statistics on
/// the device. It has no CUDA type, so that code outside cupti/ needs no CUDA header.
///
/// Place:    interposer/core owns one; the wrappers of the preload library reach it through the
///           hooks table.
/// Threads:  start and stop from one thread; everything else from any thread.
/// Errors:   a part that is missing (no CUPTI, another subscriber) is reported once, as a log line
///           and a Diagnostic, and the others go on. The launch functions always make the real call
///           exactly once and return its result.
/// Source:   docs/adr/0003-observe-in-callbacks-act-in-the-gate.md.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cupti/abi/hooks_v1.h"
#include "cupti/gate/options.h"
#include "cupti/kernels/kernel_signature.h"
#include "cupti/values/request.h"

namespace convtrace::cupti {

/// kPreparation: the first request in a context waits until the context is prepared.
enum class Patience : uint8_t { kNone, kPreparation };

class Interceptor {
 public:
  /// Finds the driver and CUPTI in the process (RTLD_NOLOAD first) and subscribes to callbacks.
  /// Makes no CUDA call, so it may run inside cuInit.
  explicit Interceptor(InterceptorOptions options);
  ~Interceptor();
  Interceptor(const Interceptor&) = delete;
  Interceptor& operator=(const Interceptor&) = delete;

  /// The gate: a launch function of the driver was called with `params`; see hooks_v1.h.
  /// @return the result of `real`, which is called exactly once.
  int launch(convtrace_launch_call call, bool per_thread, const void* params,
             convtrace_launch_fn real) noexcept;
  /// A graph was captured, instantiated or changed: see hooks_v1.h.
  void graph_call(convtrace_graph_call call, void* exec, void* object, const void* params) noexcept;

  /// Memory of the driver is freed, or something else happens to it: see hooks_v1.h.
  int free_memory(convtrace_cuMemFree_fn real, uint64_t address) noexcept;
  int memory_call(convtrace_memory_call call, uint64_t address, uint64_t bytes,
                  void* stream) noexcept;
  /// Frees all memory in quarantine, also when tracing is off. @return whether there was any.
  bool give_back() noexcept;

  /// Ends the subscription to CUPTI for good, if there is one, because another tool asks for it.
  /// Launches are still recorded.
  void give_cupti_away() noexcept;

  /// Queues statistics of device tensors on `stream`, behind the work it holds now. The batch is
  /// launched before this returns; each tensor comes out of the sink as a TensorStats when the
  /// device is done. All tensors lie on one device, which need not be the current one. Where
  /// another stream may have written a tensor meanwhile, a Loss takes the place of its value. The
  /// first call with kPreparation in a context may wait a second.
  /// @return kSampled, or why nothing of the batch was queued; the caller counts that.
  format::SampleOutcome submit(std::span<DeviceRequest> batch, uint64_t stream,
                               Patience patience = Patience::kPreparation,
                               Results results = Results::kSoon) noexcept;
  /// Launches what completes the results that wait since they may come later.
  void fold_waiting() noexcept;

  /// Begins the preparation of a context for requests, if values are computed at all, and does not
  /// wait for it. @param values  false: nothing is prepared. @param device  whose only context it
  /// is; nullopt: it is the current one.
  /// @return its device; nullopt: there is no such context.
  std::optional<uint8_t> prepare(bool values, std::optional<uint8_t> device) noexcept;

  /// @param event  with the tensor's device and the generation of its block. @param stream  as
  /// submit().
  /// @return whether a read of the tensor on that stream (or on the host, for host memory) is
  /// ordered behind every write that is known.
  [[nodiscard]] bool is_settled(const format::TensorStats& event, uint64_t stream) noexcept;

  /// Stores names and types of a kernel's parameters, which a compiler has reported. `function`: the
  /// kernel's CUfunction (function_table.h).
  void describe_kernel(uint64_t function, KernelSignature signature) noexcept;

  /// Emits at most kMaxCollected finished results, 600 kB, for which the queue behind the sink has
  /// room. Called by the writer thread.
  /// @return whether more may be ready.
  bool collect() noexcept;
  static constexpr uint64_t kMaxCollected = 256;

  /// @return facts for META ("version.driver", "version.cupti", "device.0.name", ...); there are
  /// more after each new context.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> facts() const;

  /// The rule book was changed: known kernels are matched again. Graphs keep the rules with which
  /// they were instantiated.
  void rules_changed() noexcept;

  /// Ends observation: unsubscribes, and waits at most `deadline_ns` for results of the device.
  /// From then on the gate only passes calls through.
  void stop(uint64_t deadline_ns) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::cupti
