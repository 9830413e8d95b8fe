#pragma once
/// @file cuda_state.h
/// The state that the gate, the CUPTI callbacks and the launch captures share: the driver's entry
/// points, the tables of kernels, graphs, contexts and memory, and the event sink.
///
/// Place:    owned by interceptor.cpp.
/// Threads:  each table has its own lock; all other members do not change while tracing runs.

#include <atomic>
#include <optional>

#include "cupti/driver/api.h"
#include "cupti/driver/context_table.h"
#include "cupti/gate/options.h"
#include "cupti/gate/work_clock.h"
#include "cupti/graphs/capture_tracker.h"
#include "cupti/graphs/graph_table.h"
#include "cupti/kernels/function_table.h"
#include "cupti/kernels/tensor_maps.h"
#include "cupti/memory/quarantine.h"
#include "cupti/values/device_stats.h"
#include "cupti/values/stream_uses.h"
#include "format/base/messages.h"
#include "format/base/mutex.h"

namespace convtrace::cupti {

/// The calling thread's context, with its device; null when the thread has none.
struct CurrentContext {
  CUcontext context = nullptr;
  uint8_t device = 0;
};

/// @return the largest number of samples that any rule or option asks for.
[[nodiscard]] uint32_t most_samples(const InterceptorOptions& options);

struct CudaState {
  CudaState(const InterceptorOptions& options_in, const DriverApi& driver_in)
      : options(options_in),
        driver(driver_in),
        functions(driver, *options.definitions, *options.rules, options.wants_kernel),
        graphs(driver, functions),
        stats(driver, *options.sink, most_samples(options), options.values, options.value_bytes),
        uses(*options.addresses),
        quarantine(driver, options.poison, options.quarantine) {}

  [[nodiscard]] Position position() const noexcept {
    return options.position == nullptr ? Position{} : options.position();
  }

  /// Adds a context that the program uses. If rules may ask for statistics at a launch, the new
  /// context is prepared now; otherwise the observer's first request prepares it.
  void use_context(CUcontext context, uint8_t device, uint64_t id = 0);

  /// Removes a context that is about to be destroyed, or was destroyed.
  void forget_context(CUcontext context);

  /// Says whether CUPTI reports the ends of contexts. Without these reports another context may get
  /// the same handle unnoticed, so each query of the current context asks the driver for its id.
  void follow_context_ends(bool told) noexcept {
    ends_are_told.store(told);
    stats.follow_context_ends(told);
  }

  /// Calls the driver, so it must not be called from a CUPTI callback.
  CurrentContext current_context();
  /// @return the context that a stream belongs to. Calls the driver, too.
  CurrentContext context_of(CUstream stream);

  /// Removes an earlier context that had the same handle as the current one. @return the id of the
  /// current context; 0: not asked for, or not known.
  uint64_t replace_former(CUcontext current);

  /// @return whether `stream` is being captured: work on it is recorded into a graph and does not run.
  [[nodiscard]] bool is_capturing(CUstream stream) const noexcept;

  const InterceptorOptions options;
  const DriverApi driver;
  FunctionTable functions;
  GraphTable graphs;
  TensorMaps tensor_maps;
  ContextTable contexts;
  CaptureTracker captures;
  DeviceStats stats;
  StreamUses uses;
  WorkClock work;
  Quarantine quarantine;
  std::atomic<bool> active{true};  ///< false: the gate only passes calls through
  std::atomic<bool> ends_are_told{false};
  /// The warning that stored values may be incomplete was given.
  std::atomic<bool> values_cut{false};
  std::atomic<bool> context_met{false};
  /// A message about CUPTI that is reported once a context exists. Without a context nothing is
  /// missing: CUPTI refuses where there is no device. Set before other threads see this object.
  std::optional<Notice> cupti_trouble;
  Mutex replacing;  ///< held while facts about a former context of a handle are removed
  /// False after a sticky error: convtrace launches nothing any more.
  std::atomic<bool> gpu_work{true};
  std::atomic<uint64_t> last_probe{0};
};

/// One line for people and one event for the trace.
void report(const CudaState& state, const Message& message, const char* what) noexcept;

}  // namespace convtrace::cupti
