#pragma once
/// @file observer_port.h
/// The engine's implementation of observer_abi.h: parses batches of messages and handles each
/// message.
///
/// Threads:  any, concurrently.
/// Errors:   a malformed batch is dropped from the bad message on, and counted (state.h).

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "cupti/interceptor.h"
#include "cupti/memory/address_map.h"
#include "cupti/stats/cpu/helper_threads.h"
#include "cupti/stats/tile/layout.h"
#include "format/model/definitions.h"
#include "format/model/event_sink.h"
#include "interposer/core/control/capture_rules.h"
#include "interposer/core/control/name_filter.h"
#include "interposer/core/control/step_control.h"
#include "interposer/core/memory/memory_journal.h"
#include "interposer/core/observer/message_reader.h"
#include "interposer/core/observer/op_recorder.h"
#include "interposer/core/runtime/fact_table.h"
#include "interposer/core/runtime/state.h"
#include "interposer/core/values/known_values.h"
#include "interposer/core/values/value_store.h"

namespace convtrace::engine {

/// The functions of the engine that the port calls; replaced in tests.
class ObserverHost {
 public:
  virtual ~ObserverHost() = default;
  /// See cupti::Interceptor::submit.
  virtual format::SampleOutcome submit_to_device(std::span<cupti::DeviceRequest> batch,
                                                 uint64_t stream,
                                                 cupti::Results results) noexcept = 0;
  /// See cupti::Interceptor::fold_waiting.
  virtual void fold_waiting() noexcept = 0;
  /// See cupti::Interceptor::is_settled.
  [[nodiscard]] virtual bool is_settled(const format::TensorStats& event,
                                        uint64_t stream) noexcept = 0;
  /// See cupti::Interceptor::describe_kernel.
  virtual void describe_kernel(uint64_t function, cupti::KernelSignature signature) noexcept = 0;
  /// A custom op was called, in this process or another, for the first time.
  virtual void on_custom_op() noexcept = 0;
  virtual void on_fact(std::string_view name, std::string_view value) = 0;
  /// Queues a value whose hash, or statistics and samples, the writer thread computes.
  /// @param elements  of the value, as they are now.
  /// @return false if they are to be computed here: the value is large, or many wait.
  [[nodiscard]] virtual bool queue_value(const format::TensorStats& event,
                                         const stats::Layout& elements) noexcept = 0;
  /// The observer reports time that it spent outside of submit().
  virtual void on_spent(uint64_t ns) noexcept = 0;
  /// @return what calls of convtrace have taken in this process.
  [[nodiscard]] virtual uint64_t spent_so_far() const noexcept = 0;
};

/// How many recorded calls are under way, backward passes among them: as long as there is one, another
/// batch follows, at the latest when it ends. A call whose end is not recorded counts until the step
/// ends.
class OpenCalls {
 public:
  void begin() noexcept { count_.fetch_add(1); }
  void end() noexcept {
    uint32_t now = count_.load();
    while (now > 0 && !count_.compare_exchange_weak(now, now - 1)) {
    }
  }
  void end_all() noexcept { count_.store(0); }
  [[nodiscard]] bool any() const noexcept { return count_.load() > 0; }

 private:
  std::atomic<uint32_t> count_{0};
};

class ObserverPort {
 public:
  /// All references outlive the port.
  struct Deps {
    State& state;
    format::EventSink& sink;
    format::Definitions& definitions;
    const cupti::AddressMap& addresses;
    MemoryJournal& journal;
    OpRecorder& ops;
    StepControl& steps;
    ObserverHost& host;
    CaptureRules& captures;
    ValueStore& values;
    NameFilter& names;
    stats::HelperThreads* helpers = nullptr;  ///< for large CPU tensors
    bool poison = false;  ///< memory of CPU tensors is filled with the pattern of CONVTRACE_POISON
  };
  explicit ObserverPort(const Deps& deps) : deps_(deps) {}

  /// Processes one batch. @return convtrace_submit_flags.
  uint32_t submit(std::span<const std::byte> batch);

  /// @return the flags that submit() would return for an empty batch.
  [[nodiscard]] uint32_t flags() const noexcept;

 private:
  class Batch;

  Deps deps_;
  KnownValues known_;
  OpenCalls open_;
};

}  // namespace convtrace::engine
