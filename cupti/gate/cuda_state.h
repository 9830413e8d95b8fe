#pragma once
/// @file cuda_state.h
/// What the gate, the callbacks and the launch captures share: the way to the driver, the tables of what
/// has been seen, and the way out for events.
///
/// Place:    owned by interceptor.cpp.
/// Threads:  the tables lock for themselves; the rest is immutable once tracing runs.

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "cupti/driver/api.h"
#include "cupti/driver/context_table.h"
#include "cupti/gate/options.h"
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

/// @return samples that a value may have.
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

  /// Notes a context that the program uses. A new one is prepared for statistics if rules may ask
  /// for them at any launch; an observer's first request has it prepared otherwise.
  void use_context(CUcontext context, uint8_t device, uint64_t id = 0);

  /// It is about to be destroyed, or gone.
  void forget_context(CUcontext context);

  /// Whether CUPTI tells when a context ends. Where it does not, a handle may come again for
  /// another one, and each query of the current context asks the driver for its id.
  void follow_context_ends(bool told) noexcept {
    ends_are_told.store(told);
    stats.follow_context_ends(told);
  }

  /// Asks the driver: not for CUPTI callbacks.
  CurrentContext current_context();
  /// The context that a stream belongs to. Asks the driver, too.
  CurrentContext context_of(CUstream stream);

  /// Forgets the context that had the current one's handle before. @return the current one's id; 0:
  /// not asked, or not known.
  uint64_t replace_former(CUcontext current);

  /// Whether work on `stream` is recorded into a graph now instead of run.
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
  Quarantine quarantine;
  std::atomic<bool> active{true};  ///< false: the gate only passes calls through
  std::atomic<bool> ends_are_told{false};
  std::atomic<bool> values_cut{false};  ///< said that values may be those of a part
  std::atomic<bool> context_met{false};
  /// What is said of CUPTI once there is a context. Without one nothing is missing: CUPTI refuses
  /// where there is no device. Set before another thread sees this.
  std::optional<Notice> cupti_trouble;
  Mutex replacing;  ///< held while what was known of a handle's last context is forgotten
  std::atomic<bool> gpu_work{true};  ///< false after a sticky error: no launch of ours
  std::atomic<uint64_t> last_probe{0};
};

/// One line for people and one event for the trace.
void report(const CudaState& state, const Message& message, const char* what) noexcept;

}  // namespace convtrace::cupti
