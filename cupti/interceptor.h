#pragma once
/// @file interceptor.h
/// Everything CUDA behind one door: finding the driver and CUPTI, callbacks, the launch gate,
/// statistics on the device. No CUDA type appears here, so that nothing outside cupti/ needs its
/// headers.
///
/// Place:    interposer/core owns one; the stub's wrappers reach the launch functions through the
/// hooks table. Threads:  start and stop from one thread; everything else from any thread. Errors:
/// a part that is missing (no CUPTI, another subscriber) is reported once, as a log line and a
/// Diagnostic, and
///           the others go on. The launch functions always make the real call exactly once and
///           return its result.
/// Source:   docs/design.md "Interception".

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cupti/memory/address_map.h"
#include "cupti/hooks_v1.h"
#include "cupti/kernels/output_learner.h"
#include "cupti/stats/tile/tensor_view.h"
#include "cupti/values/value_sink.h"
#include "format/model/definitions.h"
#include "format/model/event_sink.h"
#include "format/settings/rule_book.h"

namespace convtrace::cupti {

/// Where the calling thread is in the program.
struct Position {
  format::Place place;
  uint32_t step = 0;
  bool capture = true;  ///< values of this step are wanted
};

struct InterceptorOptions {
  format::EventSink* sink = nullptr;  ///< outlives the interceptor, as the next two
  format::Definitions* definitions = nullptr;
  AddressMap* addresses = nullptr;
  Position (*position)() noexcept = nullptr;
  /// Brings `addresses` up to what allocators have reported; null: it always is. `all`: also what
  /// another thread is at, for values, whose extent depends on it. Returns whether all is in.
  bool (*settle_memory)(bool all) noexcept = nullptr;
  /// Asked for a rule that is for all kernels; null: all are wanted.
  bool (*wants_kernel)(format::KernelId kernel) noexcept = nullptr;
  /// Called on the launching thread in front of each launch's event; null: nobody wants to know.
  void (*note_launch)() noexcept = nullptr;
  /// Called once, when the program uses its first context: cuInit is over. Maybe inside a CUPTI
  /// callback. Null: nobody wants to know.
  void (*note_context)() noexcept = nullptr;
  settings::RuleBook* rules = nullptr;  ///< of this rank; outlives the interceptor
  std::string cupti_path;               ///< CONVTRACE_CUPTI or empty
  bool record_launches = true;          ///< false below mode `launches`
  bool compute_values = true;           ///< false below mode `hash`: contexts are not prepared
  uint32_t samples = 8;                 ///< of values that a rule says nothing else for
  bool poison = false;                  ///< see kept_memory.h, as the next
  bool quarantine = false;
  ValueSink* values = nullptr;  ///< null: no value is stored whole; outlives the interceptor
  uint64_t value_bytes = 0;     ///< of each context's memory, for values on their way
};

/// Half of a look (output_learner.h): the hash in front of a launch, or the value behind it.
struct Look {
  OutputLearner* learner = nullptr;  ///< null: it is no look; outlives its results
  uint64_t id = 0;                   ///< joins the two halves
  uint32_t word = 0;
  bool before = false;
};

/// One tensor on a device whose statistics an observer wants. `event` is complete but for its
/// numbers; its shape span is borrowed for the call, all else is copied.
struct DeviceRequest {
  stats::TensorView view;
  format::TensorStats event;
  const settings::Rule* rule = nullptr;  ///< that asks for it, if one does
  uint32_t samples = 8;                  ///< above 8: also so many of the first elements
  Look look{};
};

class Interceptor {
 public:
  /// Finds what is loaded (RTLD_NOLOAD first) and subscribes. Makes no CUDA call: it may run inside
  /// cuInit.
  explicit Interceptor(InterceptorOptions options);
  ~Interceptor();
  Interceptor(const Interceptor&) = delete;
  Interceptor& operator=(const Interceptor&) = delete;

  /// The gate: see hooks_v1.h for the arguments.
  int launch_kernel(convtrace_cuLaunchKernel_fn real, int per_thread, void* function,
                    unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                    void** params, void** extra) noexcept;
  int launch_kernel_ex(convtrace_cuLaunchKernelEx_fn real, int per_thread, const void* config,
                       void* function, void** params, void** extra) noexcept;
  int launch_cooperative(convtrace_cuLaunchCooperativeKernel_fn real, int per_thread,
                         void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, void* stream, void** params) noexcept;
  int launch_multi_device(convtrace_cuLaunchCooperativeKernelMultiDevice_fn real, void* list,
                          unsigned count, unsigned flags) noexcept;
  int graph_launch(convtrace_cuGraphLaunch_fn real, int per_thread, void* graph_exec,
                   void* stream) noexcept;
  /// A graph was recorded, made or changed: see hooks_v1.h.
  void graph_call(convtrace_graph_call call, void* exec, void* object, const void* params) noexcept;

  /// The driver's memory is freed, or something else happens to it: see hooks_v1.h.
  int free_memory(convtrace_cuMemFree_fn real, uint64_t address) noexcept;
  int memory_call(convtrace_memory_call call, uint64_t address, uint64_t bytes,
                  void* stream) noexcept;
  /// Frees what is kept of freed memory, whatever the state of tracing. @return whether there was
  /// any.
  bool give_back() noexcept;

  /// Queues statistics of device tensors behind what `stream` holds now; each comes out of the sink
  /// as a TensorStats once the device is done. One batch, launched before this returns. All of it
  /// lies on one device, which need not be the current one. The first call in a context may wait a
  /// second for its preparation.
  /// @return kSampled, or why nothing was queued (then nothing of the batch was; the caller counts
  /// it).
  format::NotSampled submit(std::span<const DeviceRequest> batch, uint64_t stream) noexcept;

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
